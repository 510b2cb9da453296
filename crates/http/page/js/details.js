// All there is to know about what is selected, and what one may do with it.

import * as actions from "./actions.js";
import { address, go } from "./address.js";
import { call } from "./api.js";
import { el } from "./dom.js";
import { fullName } from "./store.js";
import * as words from "./words.js";

export class Details {
  #element;
  #store;
  /** What the panel shows now. */
  #drawn = [];
  #chain = null;
  #asked = null;
  #askedAt = 0;

  constructor(store, element) {
    [this.#store, this.#element] = [store, element];
  }

  update() {
    const { selected } = address();
    // Before the agent has said anything, it is not known what that is.
    const known = selected && this.#store.starts > 0;
    this.#element.hidden = !known;
    if (!known) {
      this.#drawn = [];
      return;
    }
    const found = this.#find(selected);
    if (found.kind === "waiting") this.#explain(selected);
    // Only if something is another one: whoever reads or presses a button here is not disturbed.
    const drawn = [selected, found.kind, found.one, found.unit, found.holders?.join(), this.#chain, this.#store.agent, address().view];
    if (drawn.length === this.#drawn.length && drawn.every((one, i) => one === this.#drawn[i])) return;
    this.#drawn = drawn;
    const focus = this.#element.contains(document.activeElement);
    this.#element.replaceChildren(this.#head(found.title), ...this.#body(found, selected));
    if (focus) this.#element.querySelector("button")?.focus();
  }

  #find(selected) {
    if (selected.startsWith("unit:")) return this.#unit(selected.slice(5));
    const grant = this.#store.grants.get(selected);
    if (grant) return { kind: "grant", title: `Grant ${selected}`, one: grant };
    const waiting = this.#store.waiting.get(selected);
    if (waiting) return { kind: "waiting", title: `Request ${selected}`, one: waiting };
    return { kind: "gone", title: words.shorten(selected, 60) };
  }

  #unit(name) {
    const pool = this.#store.pools.get(this.#store.poolOf(name));
    const unit = pool?.units.find((unit) => unit.name === name || fullName(pool.name, unit.name) === name);
    if (!unit && !pool?.lock) return { kind: "gone", title: words.shorten(name, 80) };
    const full = fullName(pool.name, unit?.name ?? name);
    const holders = unit ? [unit.holder].filter(Boolean) : pool.holders;
    return { kind: "unit", title: words.shorten(full, 80), pool: pool.name, lock: pool.lock, name: full, unit, holders };
  }

  async #explain(number) {
    const fresh = this.#asked === number && Date.now() - this.#askedAt < 3_000;
    if (fresh) return;
    if (this.#asked !== number) this.#chain = null;
    [this.#asked, this.#askedAt] = [number, Date.now()];
    try {
      const chain = await call("GET", `v1/explain/${encodeURIComponent(number)}`);
      if (this.#asked === number) this.#chain = chain;
    } catch {
      // Just granted or gone: the stream will say.
    }
    if (address().selected === number) this.update();
  }

  #head(title) {
    return el("header", {}, el("h2", {}, title),
      el("button", { class: "icon", "aria-label": "Close", title: "Close (Esc)", onclick: () => go({ selected: "" }) }, "✕"));
  }

  #body(found, selected) {
    if (found.kind === "grant") return this.#grant(found.one);
    if (found.kind === "waiting") return this.#waiting(found.one);
    if (found.kind === "unit") return this.#unitBody(found);
    return [el("p", { class: "muted" }, "This is over, or was never here."),
      el("button", { onclick: () => go({ view: "log", text: selected, selected: "" }) }, "Look in the events")];
  }

  #grant(one) {
    const store = this.#store;
    const mine = store.isMine(one);
    const reserved = one.state === "reserved";
    const buttons = [
      reserved && store.may("reserve") && (mine || store.may("force")) && el("button", { onclick: () => actions.renew(one) }, "Renew…"),
      reserved && mine && el("button", { onclick: () => actions.release(one) }, "Release…"),
      (store.may("force") || (mine && !reserved)) && el("button", { class: "danger", onclick: () => actions.force(one) }, "Take away…"),
    ];
    return [
      el("p", { class: "chips" }, el("span", { class: `tag state-${one.state}` }, one.state)),
      facts([
        ["since", words.time(one.since)],
        ["until", one.until && words.time(one.until)],
        ...whoFacts(one.who),
        ["asked for", words.needs(one.needs, 2000)],
        ["processes", one.pids.slice(0, 40).join(", ")],
        ["part of", one.part_of && numbers([one.part_of])],
        ["parts", one.parts.length && numbers(one.parts)],
      ]),
      el("h3", {}, "Holds"),
      el("table", { class: "units" }, el("thead", {}, el("tr", {}, el("th", {}, "unit"), el("th", {}, "fence"))),
        el("tbody", {}, one.taken.flatMap((taken) => taken.units).slice(0, 500).map((unit) =>
          el("tr", {}, el("td", {}, el("button", { class: "plain", onclick: () => go({ selected: `unit:${unit.name}` }) }, words.shorten(unit.name, 100))), el("td", {}, words.fence(unit.fence)))))),
      buttonsOf(buttons),
    ];
  }

  #waiting(one) {
    const now = this.#store.now();
    const chain = this.#asked === one.request ? this.#chain : null;
    const hindrances = chain?.chain.find((other) => other.request === one.request)?.hindrances ?? one.hindrances;
    return [
      facts([
        ["waits since", words.time(one.since)],
        ...whoFacts(one.who),
        ["asked for", words.needs(one.needs, 2000)],
        ["inside", one.within && numbers([one.within])],
        ["part of", one.part_of && numbers([one.part_of])],
      ]),
      el("h3", {}, "Waits because"),
      el("ul", { class: "why" }, hindrances.slice(0, 50).map((hindrance) => el("li", {}, words.hindrance(hindrance, now),
        el("div", {}, numbers([...hindrance.holders.slice(0, 12), ...hindrance.ahead.slice(0, 8)]))))),
      ...outlook(chain?.outlook),
      chain && el("h3", {}, chain.circular ? "A circle: this will not end by itself" : "Granted when these are given back"),
      chain && el("ul", { class: "why" }, chain.release.slice(0, 50).map((grant) =>
        el("li", {}, numbers([grant.request]), ` ${words.said(grant.who)}`))),
      chain?.left_out ? el("p", { class: "muted" }, `${chain.left_out} more are not shown.`) : null,
      buttonsOf([
        address().view !== "graph" && el("button", { onclick: () => go({ view: "graph" }) }, "Show the chain"),
        actions.isAwaited(one.request) && el("button", { onclick: () => actions.withdraw(one.request) }, "Withdraw"),
      ]),
    ].filter(Boolean);
  }

  #unitBody({ pool, lock, name, unit, holders }) {
    const may = this.#store.may("pools");
    const drained = unit?.drained;
    return [
      facts([
        [lock ? "lock" : "pool", el("button", { class: "plain", onclick: () => go({ pool }) }, words.shorten(pool, 80))],
        ["held by", holders.length ? numbers(holders) : "nobody"],
        ["state", drained && words.drained(drained, this.#store.now())],
        ["retiring", unit?.retiring && "goes away when it comes back"],
      ]),
      buttonsOf([
        this.#store.may("reserve") && el("button", { onclick: () => actions.reserve(name) }, "Reserve…"),
        may && unit && !drained && el("button", { onclick: () => actions.drain(name) }, "Drain…"),
        may && drained && el("button", { onclick: () => actions.undrain(name) }, "Undrain"),
      ]),
    ];
  }
}

/** When it will probably be granted, as far as that can be told. */
function outlook(known) {
  if (!known) return [];
  const between = ([from, to]) => `${words.time(from)} to ${words.time(to)}`;
  const said = known.half && known.nine
    ? facts([["half", between(known.half)], ["nine of ten", between(known.nine)]])
    : el("p", { class: "muted" }, `Nobody can tell: ${words.shorten(known.unknown, 300)}.`);
  return [el("h3", {}, "Granted, probably"), said];
}

function buttonsOf(buttons) {
  return el("div", { class: "buttons" }, buttons);
}

function facts(rows) {
  return el("dl", {}, rows.filter(([, value]) => value).flatMap(([label, value]) => [el("dt", {}, label), el("dd", {}, value)]));
}

function whoFacts(one) {
  return [
    ["user", el("button", { class: "plain", onclick: () => go({ user: one.user }) }, words.shorten(one.user, 100))],
    ["name", one.from?.name && words.shorten(one.from.name, 500)],
    ["reason", one.from?.reason && el("div", { class: "long" }, words.clean(one.from.reason))],
    ["command", one.from?.command && el("div", { class: "long" }, words.clean(one.from.command))],
    ["process", one.pid ? `${one.pid} on ${words.shorten(one.host, 100)}` : words.shorten(one.host, 100)],
  ];
}

function numbers(all) {
  return el("span", { class: "numbers" }, all.slice(0, 60).map((number) =>
    el("button", { class: "plain number", onclick: () => go({ selected: number }) }, number)));
}
