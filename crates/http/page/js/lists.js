// Who waits, in the order of service, and who holds.

import { address, go } from "./address.js";
import { el, setText } from "./dom.js";
import { requestFilter } from "./filter.js";
import { VirtualList } from "./virtual.js";
import * as words from "./words.js";

/** A panel with a list of requests. */
class Requests {
  element;
  list;
  store;
  #count;

  constructor(store, { title, name, height, draw, nothing }) {
    this.store = store;
    this.list = new VirtualList({
      label: title,
      height,
      key: (row) => row.one.request,
      draw: (row, old) => {
        const element = draw(row, old);
        element.classList.toggle("selected", address().selected === row.one.request);
        return element;
      },
      onOpen: (row) => go({ selected: row.one.request }),
    });
    this.#count = el("span", { class: "panel-count" });
    this.element = el("section", { class: `panel panel-${name}`, "aria-label": title },
      el("h2", {}, `${title} `, this.#count), this.list.element, el("p", { class: "nothing" }, nothing));
  }

  show(rows, all) {
    setText(this.#count, rows.length === all ? `${all}` : `${rows.length} of ${all}`);
    this.element.classList.toggle("empty", rows.length === 0);
    this.list.set(rows);
  }

  tick() {
    this.list.paint();
  }
}

export class Queue extends Requests {
  constructor(store) {
    const draw = (row, old) => drawWaiting(row, old, store.now());
    super(store, { title: "Queue", name: "queue", height: 58, draw, nothing: "Nobody waits." });
  }

  update() {
    const meant = requestFilter(this.store, address());
    const rows = [];
    let place = 0;
    for (const one of this.store.waiting.values()) {
      place += 1;
      if (meant(one)) rows.push({ one, place });
    }
    this.show(rows, this.store.waiting.size);
  }
}

function drawWaiting({ one, place }, old, now) {
  const row = old ?? el("div", { class: "row waiting" },
    el("span", { class: "place" }), el("span", { class: "number" }), el("b", { class: "what" }), el("span", { class: "who" }),
    el("span", { class: "since" }), el("span", { class: "because" }));
  const [at, number, what, by, since, because] = row.children;
  setText(at, `${place}`);
  setText(number, one.request);
  setText(what, words.needs(one.needs, 100));
  setText(by, words.said(one.who));
  setText(since, words.span(now - one.since));
  setText(because, words.shorten(words.because(one, now), 240) || "…");
  return row;
}

export class Holders extends Requests {
  constructor(store) {
    const draw = (row, old) => drawGrant(row, old, store.now());
    super(store, { title: "Holders", name: "holders", height: 58, draw, nothing: "Nothing is held." });
  }

  update() {
    const meant = requestFilter(this.store, address());
    const rows = [];
    for (const one of this.store.grants.values()) if (meant(one)) rows.push({ one });
    this.show(rows, this.store.grants.size);
  }
}

function drawGrant({ one }, old, now) {
  const row = old ?? el("div", { class: "row grant" },
    el("span", { class: "dot" }), el("span", { class: "number" }), el("b", { class: "what" }), el("span", { class: "who" }),
    el("span", { class: "since" }), el("span", { class: "because" }));
  const [dot, number, what, by, since, state] = row.children;
  const look = `dot state-${one.state}`;
  if (dot.className !== look) dot.className = look;
  setText(number, one.request);
  setText(what, words.shorten(unitsOf(one), 140));
  setText(by, words.said(one.who));
  setText(since, words.span(now - one.since));
  const part = one.part_of ? `, part of ${one.part_of}` : "";
  const command = one.who.from?.command ? ` · ${words.shorten(one.who.from.command, 80)}` : "";
  setText(state, `${words.state(one, now)}${part}${command}`);
  return row;
}

/** What a grant holds, by name: `gpu/0,3 license/maya`. */
export function unitsOf(grant) {
  return grant.taken.slice(0, 20).map(({ name, units }) => {
    const short = (unit) => (unit.startsWith(`${name}/`) ? unit.slice(name.length + 1) : unit);
    return units.slice(0, 20).map((unit, i) => (i ? short(unit.name) : unit.name)).join(",");
  }).join(" ");
}
