// Pools as tiles of units, locks as tiles of their own.

import { address, go } from "./address.js";
import { el, setAttribute, setText } from "./dom.js";
import { unitFilter } from "./filter.js";
import { VirtualList } from "./virtual.js";
import * as words from "./words.js";

// Pools with more units than that have small tiles.
const LARGE_MOST = 96;
const SIZES = {
  large: { width: 132, height: 46, gap: 6 },
  small: { width: 22, height: 22, gap: 4 },
};

export class Pools {
  element;
  #store;
  #list;
  #head;

  constructor(store) {
    this.#store = store;
    this.#list = new VirtualList({
      label: "Pools",
      role: "group",
      key: (row) => row.key,
      height: (row) => (row.size ? row.size.height + row.size.gap : 46),
      draw: (row, old) => (row.size ? this.#tiles(row, old) : this.#header(row, old)),
    });
    this.#list.element.addEventListener("click", (event) => this.#click(event));
    this.#list.element.addEventListener("keydown", (event) => this.#press(event));
    this.#head = el("span", { class: "panel-count" });
    this.element = el("section", { class: "panel panel-pools", "aria-label": "Pools" },
      el("h2", {}, "Pools ", this.#head, legend()), this.#list.element);
    let width = 0;
    new ResizeObserver(([entry]) => {
      if (Math.abs(entry.contentRect.width - width) > 1) {
        width = entry.contentRect.width;
        this.update();
      }
    }).observe(this.#list.element);
  }

  /** Everything anew. */
  update() {
    const width = this.#list.element.clientWidth - 28;
    if (width <= 0) return;
    const found = unitFilter(this.#store, address());
    const rows = [];
    const locks = [];
    let units = 0;
    for (const pool of this.#store.pools.values()) {
      if (address().pool && pool.name !== address().pool) continue;
      if (pool.lock) {
        if (!found || found(pool.name, pool.holders)) locks.push({ name: pool.name, lock: pool });
        continue;
      }
      const whole = !found || pool.name.toLowerCase().includes(address().text.toLowerCase().trim() || "\n");
      const meant = whole ? null : new Set(pool.units.filter((unit) => matches(found, unit)).map((unit) => unit.name));
      if (meant && !meant.size) continue;
      units += pool.units.length;
      this.#rowsOf(rows, pool, pool.units, meant, width);
    }
    if (locks.length) this.#rowsOf(rows, { name: "Locks", locks: locks.length }, locks, null, width);
    const counts = [words.count(units, "unit"), words.count(locks.length, "lock")];
    setText(this.#head, units || locks.length ? counts.join(", ") : "");
    this.#list.set(rows);
    this.element.classList.toggle("empty", rows.length === 0);
  }

  #rowsOf(rows, pool, units, meant, width) {
    const size = units.length > LARGE_MOST ? SIZES.small : SIZES.large;
    const columns = Math.max(1, Math.floor((width + size.gap) / (size.width + size.gap)));
    rows.push({ key: `pool ${pool.name}`, pool });
    for (let from = 0; from < units.length; from += columns) {
      const key = `${pool.name} ${columns} ${from}`;
      rows.push({ key, pool, size, meant, columns, units: units.slice(from, from + columns) });
    }
  }

  /** What is visible, since time has passed. */
  tick() {
    this.#list.paint();
  }

  #header({ pool }, old) {
    const row = old ?? el("div", { class: "pool-head" },
      el("button", { class: "pool-name" }), el("span", { class: "pool-free" }), el("span", { class: "pool-bar" }),
      el("span", { class: "pool-waiting" }));
    const [name, free, bar, waiting] = row.children;
    setText(name, words.shorten(pool.name, 80));
    if (pool.locks) {
      setText(free, `${pool.locks}`);
      name.disabled = true;
      return row;
    }
    name.dataset.pool = pool.name;
    const count = pool.units.length;
    setText(free, `${pool.free} of ${count} free${pool.removed ? ", being removed" : ""}`);
    setText(waiting, pool.waiting ? `${pool.waiting} waiting` : "");
    const shares = this.#shares(pool);
    if (bar.children.length !== shares.length) bar.replaceChildren(...shares.map(() => el("i")));
    shares.forEach(([state, share], i) => {
      bar.children[i].className = `state-${state}`;
      bar.children[i].style.flexGrow = share;
    });
    return row;
  }

  #shares(pool) {
    const counts = new Map();
    for (const unit of pool.units) {
      const state = this.#state(unit);
      counts.set(state, (counts.get(state) ?? 0) + 1);
    }
    return ["held", "stopped", "ending", "reserved", "drained", "free"]
      .filter((state) => counts.has(state)).map((state) => [state, counts.get(state)]);
  }

  #state(unit) {
    if (unit.lock) {
      const holder = this.#store.grants.get(unit.lock.holders[0]);
      return holder ? holder.state : unit.lock.holders.length ? "held" : "free";
    }
    if (unit.holder) return this.#store.grants.get(unit.holder)?.state ?? "held";
    return unit.drained ? "drained" : "free";
  }

  #tiles({ units, size, meant, pool, columns }, old) {
    const row = old ?? el("div", { class: `tiles ${size === SIZES.small ? "small" : "large"}` });
    if (!old && size === SIZES.large) row.style.gridTemplateColumns = `repeat(${columns}, minmax(0, 1fr))`;
    while (row.children.length > units.length) row.lastChild.remove();
    while (row.children.length < units.length) row.append(tile(size));
    for (let i = 0; i < units.length; i++) {
      this.#tile(row.children[i], units[i], pool, size, meant !== null && !meant.has(units[i].name));
    }
    return row;
  }

  #tile(button, unit, pool, size, faded) {
    const holders = unit.lock ? unit.lock.holders : unit.holder ? [unit.holder] : [];
    const grant = this.#store.grants.get(holders[0]);
    const state = this.#state(unit);
    const selected = address().selected;
    const marks = [
      `tile state-${state}`,
      unit.drained && holders.length ? "draining" : "",
      unit.retiring ? "retiring" : "",
      faded ? "faded" : "",
      selected && (holders.includes(selected) || selected === `unit:${unit.name}`) ? "selected" : "",
    ].filter(Boolean).join(" ");
    if (button.className !== marks) button.className = marks;
    button.dataset.unit = unit.name;
    button.dataset.holder = holders[0] ?? "";
    const now = this.#store.now();
    const by = grant ? `${words.shorten(grant.who.user, 24)}${holders.length > 1 ? ` +${holders.length - 1}` : ""}` : "";
    const since = grant ? words.span(now - grant.since) : "";
    const said = [words.clean(unit.name), state === "free" ? "free" : "", grant ? `${words.state(grant, now)} by ${holders[0]}, ${by}, for ${since}` : "",
      unit.drained ? words.drained(unit.drained, now) : "", unit.retiring ? "goes away when it comes back" : ""].filter(Boolean).join(", ");
    setAttribute(button, "aria-label", said);
    setAttribute(button, "title", said);
    if (size === SIZES.small) return;
    const short = unit.name.startsWith(`${pool.name}/`) ? unit.name.slice(pool.name.length + 1) : unit.name;
    setText(button.children[0], words.shorten(short, 40));
    setText(button.children[1], grant ? `${by} · ${since}` : unit.drained ? words.shorten(unit.drained.reason, 40) : "free");
  }

  #click(event) {
    const { unit, holder, pool } = event.target.closest("button")?.dataset ?? {};
    if (pool) go({ pool: address().pool === pool ? "" : pool });
    else if (unit) go({ selected: holder && !event.altKey ? holder : `unit:${unit}` });
  }

  /** Arrow keys go from tile to tile. */
  #press(event) {
    const row = event.target.closest(".tiles");
    if (!row || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    const all = [...this.#list.element.querySelectorAll(".tile")].map((button) => [button, button.getBoundingClientRect()]);
    const here = event.target.getBoundingClientRect();
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    let best = null;
    for (const [button, there] of all) {
      const [dx, dy] = [there.x - here.x, there.y - here.y];
      const along = dx * way[0] + dy * way[1];
      const aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
      if (along > 1 && (!best || along + aside * 3 < best.cost)) best = { button, cost: along + aside * 3 };
    }
    best?.button.focus({ preventScroll: false });
  }
}

function tile(size) {
  return size === SIZES.small ? el("button") : el("button", {}, el("b"), el("span"));
}

function matches(found, unit) {
  return found(unit.name, unit.holder ? [unit.holder] : [], unit.drained ? `${unit.drained.by} ${unit.drained.reason}` : "");
}

function legend() {
  const states = ["free", "held", "reserved", "ending", "drained"];
  return el("span", { class: "legend", "aria-hidden": "true" },
    states.map((state) => el("span", {}, el("i", { class: `state-${state}` }), state)));
}
