// What has been: uses and waits of the last hours, made of the audit log.

import { call, query } from "./api.js";

const ENDS = new Set(["released", "left", "killed", "lost", "forced", "expired", "overrun", "withdrawn", "refused"]);
const PAGE = 1000;
const PAGES = 20;
/** Whose past is not ours to see. */
const SOMEBODY = { user: "somebody", from: {} };

export class History {
  /** Of each grant: number, who, units, from, to (null while it lasts). */
  uses = new Map();
  /** Of each request that was granted: pools, how long it waited, and when it was granted. */
  waits = [];
  #asked = new Map();
  #store;
  #since = Infinity;
  #loading = null;
  #seen = 0;
  #gaps = 0;
  /** Whether not everything could be loaded. */
  partial = false;

  constructor(store) {
    this.#store = store;
  }

  /** Sees to it that everything since then is known. */
  async load(since) {
    if (this.#gaps !== this.#store.gaps) [this.#gaps, this.#since] = [this.#store.gaps, Infinity];
    if (since >= this.#since) return;
    if (this.#loading) await this.#loading;
    if (since >= this.#since) return;
    this.#loading = this.#fetch(since);
    try {
      await this.#loading;
    } finally {
      this.#loading = null;
    }
  }

  async #fetch(since) {
    const lines = [];
    let cursor = "";
    for (let page = 0; page < PAGES; page++) {
      const answer = await call("GET", `v1/audit${query({ since_ms: Math.round(since), limit: PAGE, cursor })}`);
      lines.push(...answer.lines);
      cursor = answer.cursor;
      if (!cursor) break;
    }
    this.partial = Boolean(cursor);
    this.uses.clear();
    this.#asked.clear();
    this.waits = [];
    for (const line of lines.reverse()) this.#take(line);
    this.#since = since;
  }

  /** Takes what the stream has told since the last time. */
  follow(log) {
    if (this.#since === Infinity) {
      this.#seen = log.length && log[0];
      return;
    }
    const fresh = [];
    for (const line of log) {
      if (line === this.#seen) break;
      fresh.push(line);
    }
    if (log.length) this.#seen = log[0];
    for (const line of fresh.reverse()) this.#take(line);
  }

  #take(line) {
    const { request, what, at } = line;
    if (!request) return;
    if (what === "asked") this.#asked.set(request, line);
    if (what === "granted" || what === "restored") {
      const asked = this.#asked.get(request);
      this.#asked.delete(request);
      if (this.uses.has(request)) return;
      this.uses.set(request, use(line, at));
      if (asked && what === "granted") {
        const pools = (line.taken ?? []).map((taken) => taken.name);
        this.waits.push({ pools, millis: Math.max(0, at - asked.at), at });
      }
    }
    if (ENDS.has(what)) {
      this.#asked.delete(request);
      const known = this.uses.get(request);
      if (known && known.to === null) known.to = at;
    }
  }

  /** All uses, also those of grants that are older than what was loaded. */
  all() {
    for (const [number, grant] of this.#store.grants) {
      if (!this.uses.has(number)) this.uses.set(number, use(grant, grant.since));
    }
    // Before the stream has begun, what is held is not known.
    if (!this.#store.starts) return this.uses;
    const now = this.#store.now();
    // What is no longer held and whose end was not told has ended some time ago.
    for (const known of this.uses.values()) {
      if (known.to === null && !this.#store.grants.has(known.number) && now - known.from > 10_000) known.to ??= known.seen ?? now;
      if (known.to === null) known.seen = now;
    }
    return this.uses;
  }
}

function use(one, from) {
  const units = (one.taken ?? []).flatMap((taken) => taken.units.map((unit) => ({ pool: taken.name, name: unit.name })));
  return { number: one.request, who: one.who ?? SOMEBODY, units, from, to: null };
}
