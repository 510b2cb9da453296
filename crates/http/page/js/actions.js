// What one may do here, each asked for in a dialog.

import { call, query } from "./api.js";
import { ask } from "./dialogs.js";
import { note } from "./dom.js";
import { readSpan, shorten } from "./words.js";

const TTL = 30_000;

function spanOf(text, label) {
  const millis = readSpan(text);
  if (millis === undefined) throw new Error(`${label} is a time like 90s, 15m, 2h or 1d12h.`);
  return millis;
}

/** Reserves something for a time. */
export async function reserve(needs = "") {
  const answer = await ask({
    title: "Reserve",
    text: "All of it, or nothing. It outlives this page, until its time is over or it is released.",
    button: "Reserve",
    fields: [
      { name: "needs", label: "What", value: needs, hint: "like gpu:2 license/maya db:shared", required: true },
      { name: "for", label: "For", value: "1h", hint: "like 90s, 15m, 2h, 1d", required: true },
      { name: "reason", label: "Reason", hint: "others see it" },
      { name: "queue", label: "Wait in the queue if it is not free (while this page is open)", type: "checkbox" },
    ],
    act: async (said) => {
      const body = {
        needs: said.needs.split(/\s+/).filter(Boolean),
        reserve_ms: spanOf(said.for, "For"),
        ttl_ms: TTL,
        wait_ms: 0,
        queue: said.queue,
        command: "page",
        ...(said.reason ? { reason: said.reason } : {}),
      };
      return call("PUT", `v1/requests/${newId()}`, body);
    },
  });
  if (!answer) return;
  if (answer.state === "waiting") {
    note(`${answer.request} waits; it is kept in the queue while this page is open`);
    await waitFor(answer);
  } else {
    note(`${answer.request} is reserved`);
  }
}

/** An id for a request. Not `randomUUID`, which only secure contexts have. */
function newId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** What waits for this page: the ids of the requests, by their numbers. */
const waits = new Map();

/** Whether it waits for this page, which alone can withdraw it. */
export function isAwaited(number) {
  return waits.has(number);
}

/** It is not wanted any more. */
export async function withdraw(number) {
  const id = waits.get(number);
  if (id === undefined) return; // It has come to its end meanwhile.
  try {
    await call("DELETE", `v1/requests/${encodeURIComponent(id)}`);
    note(`${number} is withdrawn`);
  } catch (problem) {
    note(problem.message, "error");
  }
}

/** Keeps a request in the queue until it is granted. */
async function waitFor(answer) {
  waits.set(answer.request, answer.id);
  await poll(answer);
  waits.delete(answer.request);
}

async function poll(answer) {
  for (;;) {
    try {
      const now = await call("GET", `v1/requests/${encodeURIComponent(answer.id)}?wait_ms=20000`);
      if (now.state !== "waiting") {
        if (now.state === "granted") note(`${answer.request} is reserved now`);
        return;
      }
    } catch (problem) {
      if (problem.status >= 400 && problem.status < 500) {
        note(`${answer.request}: ${problem.message}`, "error");
        return;
      }
      // The agent is away: it may be back in time.
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }
}

/** A reservation shall last longer. */
export function renew(grant) {
  return ask({
    title: `Renew ${grant.request}`,
    text: "How long it shall last, from now.",
    button: "Renew",
    fields: [{ name: "for", label: "For", value: "1h", required: true }],
    act: async (said) => {
      await call("POST", `v1/grants/${encodeURIComponent(grant.request)}/renew`, { reserve_ms: spanOf(said.for, "For") });
      note(`${grant.request} is renewed`);
    },
  });
}

/** Gives back what is one's own. */
export function release(grant) {
  return ask({
    title: `Release ${grant.request}?`,
    text: "What it holds is given to whoever is next.",
    button: "Release",
    act: async () => {
      await call("DELETE", `v1/grants/${encodeURIComponent(grant.request)}`);
      note(`${grant.request} is released`);
    },
  });
}

/** Takes away what is in use, or somebody else's. */
export function force(grant) {
  return ask({
    title: `Take ${grant.request} away from ${shorten(grant.who.user, 60)}?`,
    text: "Its command is stopped, and killed after ten seconds. This is noted in the audit log with your reason.",
    button: "Take it away",
    danger: true,
    fields: [{ name: "reason", label: "Reason", required: true }],
    act: async ({ reason }) => {
      await call("DELETE", `v1/grants/${encodeURIComponent(grant.request)}${query({ force: "true", reason })}`);
      note(`${grant.request} was taken away`);
    },
  });
}

/** A unit or pool is given to nobody any more. */
export function drain(name) {
  return ask({
    title: `Drain ${shorten(name, 80)}`,
    text: "It is given to nobody any more; whoever has it keeps it.",
    button: "Drain",
    fields: [
      { name: "reason", label: "Reason", required: true },
      { name: "for", label: "For", hint: "like 2h; nothing: until it is undone" },
    ],
    act: async (said) => {
      const lasting = said.for ? { for_ms: spanOf(said.for, "For") } : {};
      await call("PUT", `v1/drains/${encodeURIComponent(name)}`, { reason: said.reason, ...lasting });
      note(`${shorten(name, 80)} is drained`);
    },
  });
}

/** The opposite. */
export async function undrain(name) {
  try {
    await call("DELETE", `v1/drains/${encodeURIComponent(name)}`);
    note(`${shorten(name, 80)} is in service again`);
  } catch (problem) {
    note(problem.message, "error");
  }
}
