// What is known of the agent: a snapshot, and the changes since.

import { eachFrame } from "./dom.js";

const LOG_MOST = 5_000;

export class Store {
  pools = new Map();
  grants = new Map();
  /** In the order of service. */
  waiting = new Map();
  /** Lines of the audit log since the page is open, newest first. */
  log = [];
  agent = null;
  /** How often the stream began, and how often lines of the log were missed then. */
  starts = 0;
  gaps = 0;
  /** The pool of each unit that is known. */
  #owners = null;
  /** How far the agent's clock is ahead of ours. */
  #ahead = 0;
  #listeners = new Set();
  #changed = new Set();
  #tell = eachFrame(() => {
    const changed = this.#changed;
    this.#changed = new Set();
    for (const listener of this.#listeners) listener(changed);
  });

  /** Calls back, at most once a frame, with the names of what has changed. */
  listen(listener) {
    this.#listeners.add(listener);
  }

  #mark(...names) {
    for (const name of names) this.#changed.add(name);
    this.#tell();
  }

  /** The agent's time. */
  now() {
    return Date.now() + this.#ahead;
  }

  /** Takes an event of the stream. */
  take(type, data) {
    if (data.at && type !== "audit") this.#ahead = data.at - Date.now();
    if (type === "snapshot") this.#snapshot(data);
    if (type === "change") this.#change(data);
    if (type === "audit") this.#audit(data);
  }

  #snapshot(data) {
    this.agent = data.agent;
    this.starts += 1;
    // What is known of the log has a hole in it: it is read anew.
    if (data.missed) {
      this.gaps += 1;
      this.log = [];
    }
    this.pools = byKey(data.pools, "name");
    this.#owners = null;
    this.grants = byKey(data.grants, "request");
    this.waiting = byKey(data.waiting, "request");
    this.#mark("pools", "grants", "waiting", "agent", "log");
  }

  #change(data) {
    put(this.pools, data.pools, "name", data.gone_pools);
    if (data.pools?.length || data.gone_pools?.length) this.#owners = null;
    put(this.grants, data.grants, "request", data.ended);
    put(this.waiting, data.waiting, "request", data.left);
    if (data.pools?.length) this.pools = new Map([...this.pools].sort(([a], [b]) => (a < b ? -1 : 1)));
    if (data.order) this.#reorder(data.order);
    this.#mark("pools", "grants", "waiting");
  }

  #reorder(order) {
    const waiting = new Map();
    for (const number of order) {
      const one = this.waiting.get(number);
      if (one) waiting.set(number, one);
    }
    for (const [number, one] of this.waiting) if (!waiting.has(number)) waiting.set(number, one);
    this.waiting = waiting;
  }

  #audit(line) {
    this.log.unshift(line);
    if (this.log.length > LOG_MOST * 1.2) this.log.length = LOG_MOST;
    this.#mark("log");
  }

  setAgent(agent) {
    this.agent = agent;
    this.#mark("agent");
  }

  /** Whether the token or user may do something. */
  may(right) {
    const rights = this.agent?.your_rights ?? [];
    return rights.includes(right) || rights.includes("admin");
  }

  /** Whether something is one's own. */
  isMine(one) {
    return this.agent !== null && one.who.user === this.agent.you;
  }

  /** The pool that a name belongs to: that of a unit, or else the longest declared one before a slash. */
  poolOf(name) {
    this.#owners ??= new Map([...this.pools.values()].flatMap((pool) => pool.units.map((unit) => [unit.name, pool.name])));
    const owner = this.#owners.get(name);
    if (owner !== undefined) return owner;
    for (let part = name; ; part = part.slice(0, part.lastIndexOf("/"))) {
      if (this.pools.has(part)) return part;
      if (!part.includes("/")) return name;
    }
  }
}

/** A unit as it is asked for: some have names of their own, without the pool's. */
export function fullName(pool, unit) {
  return unit === pool || unit.startsWith(`${pool}/`) ? unit : `${pool}/${unit}`;
}

function byKey(all, key) {
  return new Map(all.map((one) => [one[key], one]));
}

function put(map, all = [], key, gone = []) {
  for (const one of all) map.set(one[key], one);
  for (const name of gone) map.delete(name);
}
