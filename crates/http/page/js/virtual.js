// A long list of which only the visible rows exist.

import { eachFrame, el } from "./dom.js";

const BEYOND = 300;

/**
 * Rows of known heights in a scrolling element. `draw(item, old)` makes a row, or updates the one that stood for the item
 * with the same key; it gets no other items' rows.
 */
export class VirtualList {
  element;
  #inner;
  #draw;
  #key;
  #height;
  #onOpen;
  #items = [];
  #offsets = [0];
  #rows = new Map();
  #active = -1;
  #prefix;
  #paint = eachFrame(() => this.paint());

  constructor({ label, draw, key, height, onOpen, onEnd, role = "listbox" }) {
    [this.#draw, this.#key, this.#onOpen] = [draw, key, onOpen];
    this.#height = typeof height === "function" ? height : () => height;
    this.#prefix = `row-${Math.random().toString(36).slice(2)}`;
    this.#inner = el("div", { class: "virtual-inner", role: "presentation" });
    this.element = el("div", { class: "virtual", role, "aria-label": label, tabindex: "0" }, this.#inner);
    this.element.addEventListener("scroll", () => {
      this.#paint();
      const left = this.element.scrollHeight - this.element.scrollTop - this.element.clientHeight;
      if (onEnd && left < 600) onEnd();
    }, { passive: true });
    if (onOpen) this.#listen();
    new ResizeObserver(() => this.#paint()).observe(this.element);
  }

  #listen() {
    this.element.addEventListener("keydown", (event) => this.#press(event));
    this.element.addEventListener("click", (event) => {
      const row = event.target.closest("[data-index]");
      if (row && this.#inner.contains(row)) this.#open(Number(row.dataset.index));
    });
  }

  get items() {
    return this.#items;
  }

  set(items) {
    const active = this.#items[this.#active];
    this.#items = items;
    const offsets = new Float64Array(items.length + 1);
    for (let i = 0; i < items.length; i++) offsets[i + 1] = offsets[i] + this.#height(items[i]);
    this.#offsets = offsets;
    this.#inner.style.height = `${offsets[items.length]}px`;
    if (active !== undefined) {
      const key = this.#key(active);
      if (this.#active >= items.length || this.#key(items[this.#active]) !== key) {
        this.#active = items.findIndex((item) => this.#key(item) === key);
      }
    }
    this.paint();
  }

  /** Draws what is visible. */
  paint() {
    const { scrollTop, clientHeight } = this.element;
    if (!clientHeight) return;
    const first = this.#at(scrollTop - BEYOND);
    const last = Math.min(this.#items.length, this.#at(scrollTop + clientHeight + BEYOND) + 1);
    const stays = new Map();
    for (let i = first; i < last; i++) {
      const key = this.#key(this.#items[i]);
      const old = this.#rows.get(key);
      const row = this.#draw(this.#items[i], old, i);
      if (row !== old) {
        old?.remove();
        row.classList.add("virtual-row");
      }
      this.#rows.delete(key);
      stays.set(key, row);
      this.#place(row, i);
    }
    for (const row of this.#rows.values()) row.remove();
    this.#rows = stays;
    // In the document they stand in the order in which they are read.
    let next = this.#inner.firstChild;
    for (const row of stays.values()) {
      if (row === next) next = next.nextSibling;
      else this.#inner.insertBefore(row, next);
    }
    const active = this.#active >= first && this.#active < last ? `${this.#prefix}-${this.#active}` : "";
    if (active) this.element.setAttribute("aria-activedescendant", active);
    else this.element.removeAttribute("aria-activedescendant");
  }

  #place(row, i) {
    const top = `translateY(${this.#offsets[i]}px)`;
    if (row.style.transform !== top) row.style.transform = top;
    if (!this.#onOpen) return;
    if (row.dataset.index !== String(i)) {
      row.dataset.index = i;
      row.id = `${this.#prefix}-${i}`;
      row.setAttribute("role", "option");
      row.setAttribute("aria-posinset", i + 1);
    }
    row.setAttribute("aria-setsize", this.#items.length);
    row.classList.toggle("active", i === this.#active);
  }

  /** The row at a height. */
  #at(y) {
    let low = 0;
    let high = this.#items.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#offsets[middle + 1] <= y) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #press(event) {
    const page = Math.max(1, Math.floor(this.element.clientHeight / 60));
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter" && this.#active >= 0) {
      this.#open(this.#active);
    } else if (event.key in steps) {
      const next = Math.min(this.#items.length - 1, Math.max(0, this.#active + steps[event.key]));
      this.#show(next);
    } else {
      return;
    }
    event.preventDefault();
  }

  #open(i) {
    this.#active = i;
    this.paint();
    if (this.#items[i] !== undefined) this.#onOpen(this.#items[i]);
  }

  #show(i) {
    this.#active = i;
    const [top, bottom] = [this.#offsets[i], this.#offsets[i + 1]];
    const { scrollTop, clientHeight } = this.element;
    if (top < scrollTop) this.element.scrollTop = top;
    else if (bottom > scrollTop + clientHeight) this.element.scrollTop = bottom - clientHeight;
    this.paint();
  }
}
