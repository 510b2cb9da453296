// Calls to the agent. The token stays in memory: it is in no address, no cookie and no storage.

let token = null;

/** What went wrong, in the agent's own words. */
export class Problem extends Error {
  constructor(status, kind, detail) {
    super(detail);
    this.status = status;
    this.kind = kind;
  }
}

export function useToken(text) {
  token = text;
}


function headers(more = {}) {
  return token === null ? more : { ...more, authorization: `Bearer ${token}` };
}

/** Opens something of the agent: `v1/...`, relative to the page. */
export async function open(path, options = {}) {
  let answer;
  try {
    answer = await fetch(new URL(path, document.baseURI), {
      cache: "no-store",
      credentials: "omit",
      referrerPolicy: "no-referrer",
      ...options,
      headers: headers(options.headers),
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem(0, "unreachable", "the agent cannot be reached");
  }
  if (answer.ok) return answer;
  const told = await answer.json().catch(() => ({}));
  const kind = String(told.type ?? "").split(":").pop() || "unknown";
  throw new Problem(answer.status, kind, told.detail || told.title || `the agent answered with status ${answer.status}`);
}

/** Makes a call, and gives the answer. */
export async function call(method, path, body) {
  const options = { method };
  if (body !== undefined) {
    options.headers = { "content-type": "application/json" };
    options.body = JSON.stringify(body);
  }
  const answer = await open(path, options);
  const text = await answer.text();
  return text ? JSON.parse(text) : null;
}

/** A query from what is there. */
export function query(values) {
  const there = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return there.length ? `?${new URLSearchParams(there)}` : "";
}
