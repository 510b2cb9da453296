// How much of each pool is in use, and how long requests wait for it.

import { address, go } from "./address.js";
import { el, setText, svg } from "./dom.js";
import { hours, hoursChoice } from "./timeline.js";
import * as words from "./words.js";

const BUCKETS = 60;

export class Usage {
  element;
  #store;
  #history;
  #table = el("div", { class: "usage-table" });
  #hint = el("p", { class: "hint" });

  constructor(store, history) {
    [this.#store, this.#history] = [store, history];
    this.element = el("section", { class: "panel panel-usage", "aria-label": "Usage" },
      el("h2", {}, "Usage and waits ", hoursChoice()), this.#hint, this.#table);
  }

  async update() {
    const to = this.#store.now();
    const from = to - Number(hours()) * 3_600_000;
    try {
      await this.#history.load(from);
      setText(this.#hint, this.#history.partial ? "The audit log has more than is counted: look at fewer hours." : "");
    } catch (problem) {
      setText(this.#hint, `The audit log cannot be read: ${problem.message}`);
    }
    this.#history.follow(this.#store.log);
    this.#table.replaceChildren(...this.#pools(from, to).map((pool) => card(pool)));
  }

  tick() {}

  #pools(from, to) {
    const { pool, user, text } = address();
    const wanted = text.trim().toLowerCase();
    const found = new Map();
    for (const one of this.#store.pools.values()) {
      if (!one.declared || (pool && one.name !== pool) || (wanted && !one.name.toLowerCase().includes(wanted))) continue;
      const units = one.lock ? 1 : one.units.length;
      found.set(one.name, { one, units, busy: new Float64Array(BUCKETS), waits: [], longest: 0, from, to });
    }
    const bucket = (to - from) / BUCKETS;
    for (const use of this.#history.all().values()) {
      if (user && use.who.user !== user) continue;
      for (const unit of use.units) add(found.get(unit.pool)?.busy, use, from, to, bucket);
    }
    for (const wait of this.#history.waits) {
      if (wait.at >= from) for (const name of wait.pools) found.get(name)?.waits.push(wait.millis);
    }
    for (const waiting of this.#store.waiting.values()) {
      for (const need of waiting.needs) {
        const known = found.get(this.#store.poolOf(need.split(":")[0]));
        if (known) known.longest = Math.max(known.longest, to - waiting.since);
      }
    }
    const all = [...found.values()];
    for (const known of all) {
      known.busy = known.busy.map((millis) => Math.min(1, millis / (bucket * Math.max(1, known.units))));
      known.share = known.busy.reduce((sum, share) => sum + share, 0) / BUCKETS;
      known.waits.sort((a, b) => a - b);
    }
    return all.sort((a, b) => b.share - a.share);
  }
}

/** Adds the time of a use to the spans of time it falls into. */
function add(busy, use, from, to, bucket) {
  if (!busy) return;
  const [start, end] = [Math.max(from, use.from), Math.min(to, use.to ?? to)];
  for (let i = Math.floor((start - from) / bucket); i < BUCKETS && from + i * bucket < end; i++) {
    if (i >= 0) busy[i] += Math.max(0, Math.min(end, from + (i + 1) * bucket) - Math.max(start, from + i * bucket));
  }
}

function card({ one, units, busy, share, waits, longest, from, to }) {
  const at = (part) => (waits.length ? words.span(waits[Math.min(waits.length - 1, Math.floor(waits.length * part))]) : "–");
  const figure = (label, value) => el("div", { class: "figure" }, el("b", {}, value), el("span", {}, label));
  const percent = `${Math.round(share * 100)} %`;
  const open = () => go({ view: "", pool: one.name });
  return el("article", { class: "usage-card" },
    el("header", {}, el("button", { class: "pool-name", onclick: open }, words.shorten(one.name, 60)), el("span", { class: "muted" }, one.lock ? "lock" : `${units} units`)),
    chart(busy, `${percent} in use from ${words.time(from)} to ${words.time(to)}`),
    el("div", { class: "figures" },
      figure("in use", percent), figure("waiting now", `${one.waiting}`), figure("longest now", longest ? words.span(longest) : "–"),
      figure("granted", `${waits.length}`), figure("wait, median", at(0.5)), figure("wait, 95 %", at(0.95)), figure("wait, longest", at(1))));
}

function chart(busy, label) {
  const bars = [...busy].map((share, i) => svg("rect", { x: i * 10, y: 100 - share * 100, width: 9, height: Math.max(0.8, share * 100) }));
  return svg("svg", { class: "chart", viewBox: "0 0 600 100", preserveAspectRatio: "none", role: "img", "aria-label": label }, bars);
}
