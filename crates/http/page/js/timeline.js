// The last hours, a row for each unit, a bar for each grant.

import { address, go } from "./address.js";
import { eachFrame, el, isDark, setText } from "./dom.js";
import { requestFilter } from "./filter.js";
import { fullName } from "./store.js";
import * as words from "./words.js";

const ROW = 22;
const AXIS = 24;
const HOURS = ["1", "4", "12", "24"];
const STEPS = [1, 2, 5, 10, 15, 30, 60, 120, 240, 360, 720].map((minutes) => minutes * 60_000);

export class Timeline {
  element;
  #store;
  #history;
  #scroller;
  #space;
  #canvas = el("canvas", { "aria-hidden": "true" });
  #hint = el("p", { class: "hint" });
  #tip = el("div", { class: "tip", hidden: true });
  #rows = [];
  #bars = new Map();
  /** Where the pointer is, if it is here: what it points at changes with time, too. */
  #pointer = null;
  #paint = eachFrame(() => this.#draw());

  constructor(store, history) {
    [this.#store, this.#history] = [store, history];
    this.#space = el("div", { class: "timeline-space" });
    this.#scroller = el("div", { class: "timeline-scroll", tabindex: "0", role: "img", "aria-label": "Timeline; the log has the same as text" },
      this.#canvas, this.#space);
    this.element = el("section", { class: "panel panel-timeline", "aria-label": "Timeline" },
      el("h2", {}, "Timeline ", hoursChoice()), this.#hint, this.#scroller, this.#tip);
    this.#scroller.addEventListener("scroll", this.#paint, { passive: true });
    for (const kind of ["pointermove", "pointerleave"]) {
      this.#scroller.addEventListener(kind, (event) => {
        this.#pointer = kind === "pointermove" ? event : null;
        this.#hover();
      });
    }
    this.#scroller.addEventListener("click", (event) => {
      const bar = this.#barAt(event);
      if (bar) go({ selected: bar.number });
    });
    new ResizeObserver(this.#paint).observe(this.#scroller);
  }

  #span() {
    return Number(hours()) * 3_600_000;
  }

  async update() {
    const since = this.#store.now() - this.#span();
    try {
      await this.#history.load(since);
      setText(this.#hint, this.#history.partial ? "The audit log has more than is shown: look at fewer hours." : "");
    } catch (problem) {
      setText(this.#hint, `The audit log cannot be read: ${problem.message}`);
    }
    this.#history.follow(this.#store.log);
    this.#collect();
    this.tick();
  }

  tick() {
    this.#paint();
    this.#hover();
  }

  /** The rows: units of the pools that are meant, and what else was held. */
  #collect() {
    const { pool, user, text } = address();
    const meant = requestFilter(this.#store, { pool: "", user, text: "" });
    const bars = new Map();
    for (const use of this.#history.all().values()) {
      if (!meant({ ...use, needs: [] })) continue;
      for (const unit of use.units) {
        if (pool && unit.pool !== pool) continue;
        const name = fullName(unit.pool, unit.name);
        if (!bars.has(name)) bars.set(name, []);
        bars.get(name).push(use);
      }
    }
    const rows = new Set();
    for (const one of this.#store.pools.values()) {
      if (pool && one.name !== pool) continue;
      if (one.lock && one.declared) rows.add(one.name);
      for (const unit of one.units) rows.add(fullName(one.name, unit.name));
    }
    for (const name of bars.keys()) rows.add(name);
    const wanted = text.trim().toLowerCase();
    const found = (name) => !wanted || name.toLowerCase().includes(wanted)
      || (bars.get(name) ?? []).some((use) => words.who(use.who).toLowerCase().includes(wanted) || use.number === wanted
        || (use.who.from?.reason ?? "").toLowerCase().includes(wanted));
    this.#rows = [...rows].filter((name) => (!user || bars.has(name)) && found(name));
    this.#bars = bars;
    this.#space.style.height = `${this.#rows.length * ROW + AXIS}px`;
  }

  #frame() {
    const width = this.#scroller.clientWidth;
    const left = Math.min(150, width * 0.28);
    const to = this.#store.now();
    const from = to - this.#span();
    const x = (at) => left + ((at - from) / (to - from)) * (width - left - 8);
    return { width, height: this.#scroller.clientHeight, left, from, to, x };
  }

  #draw() {
    const { width, height, left, from, to, x } = this.#frame();
    if (!width || !height) return;
    const scale = devicePixelRatio || 1;
    const canvas = this.#canvas;
    if (canvas.width !== Math.round(width * scale) || canvas.height !== Math.round(height * scale)) {
      [canvas.width, canvas.height] = [Math.round(width * scale), Math.round(height * scale)];
      [canvas.style.width, canvas.style.height] = [`${width}px`, `${height}px`];
    }
    const pen = canvas.getContext("2d");
    const look = getComputedStyle(this.element);
    const colour = (name) => look.getPropertyValue(name).trim();
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, height);
    pen.font = "12px system-ui, sans-serif";
    pen.textBaseline = "middle";
    const top = this.#scroller.scrollTop;
    const first = Math.max(0, Math.floor(top / ROW));
    const last = Math.min(this.#rows.length, Math.ceil((top + height) / ROW) + 1);
    const dark = isDark();
    pen.fillStyle = colour("--stripe");
    for (let i = first + (first + 1) % 2; i < last; i += 2) pen.fillRect(0, AXIS + i * ROW - top, width, ROW);
    const ticks = this.#ticks({ width, left, from, to });
    pen.fillStyle = colour("--line");
    for (const at of ticks) pen.fillRect(Math.round(x(at)), AXIS, 1, height);
    for (let i = first; i < last; i++) {
      const y = AXIS + i * ROW - top;
      const name = this.#rows[i];
      pen.fillStyle = colour("--muted");
      pen.fillText(fitName(pen, words.clean(name).slice(-60), left - 16), 10, y + ROW / 2);
      for (const use of this.#bars.get(name) ?? []) this.#bar(pen, use, x, y, { left, from, to, dark, ink: colour("--ink") });
    }
    this.#axis(pen, { width, x, colour, ticks });
  }

  #bar(pen, use, x, y, { left, from, to, dark, ink }) {
    const end = use.to ?? to;
    if (end < from || use.from > to) return;
    const x1 = Math.max(left, x(use.from));
    const w = Math.max(2, x(Math.min(end, to)) - x1);
    const hue = words.hue(use.who.user);
    const chosen = address().selected === use.number;
    pen.fillStyle = `hsl(${hue} ${dark ? "45% 42%" : "60% 72%"} / ${use.to === null ? 1 : 0.75})`;
    pen.beginPath();
    pen.roundRect(x1, y + 3, w, ROW - 6, 4);
    pen.fill();
    if (chosen) {
      pen.strokeStyle = ink;
      pen.lineWidth = 2;
      pen.stroke();
    }
    if (w > 34) {
      pen.fillStyle = dark ? "#fff" : "#10203a";
      const reason = use.who.from?.reason ? `: ${words.shorten(use.who.from.reason, 60)}` : "";
      pen.fillText(fit(pen, `${words.shorten(use.who.user, 30)}${reason}`, w - 12), x1 + 6, y + ROW / 2 + 0.5);
    }
  }

  /** Round times, not too many. */
  #ticks({ width, left, from, to }) {
    const step = STEPS.find((step) => ((to - from) / step) * 64 < width - left) ?? STEPS.at(-1);
    const zone = new Date(to).getTimezoneOffset() * 60_000;
    const ticks = [];
    for (let at = Math.ceil((from - zone) / step) * step + zone; at <= to; at += step) ticks.push(at);
    return ticks;
  }

  #axis(pen, { width, x, colour, ticks }) {
    pen.fillStyle = colour("--panel");
    pen.fillRect(0, 0, width, AXIS);
    const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
    for (const at of ticks) {
      pen.fillStyle = colour("--line");
      pen.fillRect(Math.round(x(at)), AXIS - 5, 1, 5);
      pen.fillStyle = colour("--muted");
      if (x(at) < width - 40) pen.fillText(clock.format(at), x(at) + 4, AXIS / 2);
    }
    pen.fillStyle = colour("--line");
    pen.fillRect(0, AXIS - 1, width, 1);
  }

  #barAt(event) {
    const box = this.#canvas.getBoundingClientRect();
    const { from, to, left, x } = this.#frame();
    const [px, py] = [event.clientX - box.left, event.clientY - box.top];
    if (px < left || py < AXIS) return null;
    const name = this.#rows[Math.floor((py - AXIS + this.#scroller.scrollTop) / ROW)];
    const hits = (this.#bars.get(name) ?? []).filter((use) => px >= x(Math.max(from, use.from)) - 2 && px <= x(use.to ?? to) + 2);
    return hits.at(-1) ?? null;
  }

  #hover() {
    const event = this.#pointer;
    const bar = event && this.#barAt(event);
    this.#tip.hidden = !bar;
    this.#scroller.classList.toggle("over", Boolean(bar));
    if (!bar) return;
    const end = bar.to ?? this.#store.now();
    const until = bar.to === null ? "still held" : `until ${words.time(bar.to)}`;
    this.#tip.replaceChildren(
      el("b", {}, `${bar.number}, ${words.shorten(bar.who.user, 60)}`),
      el("div", {}, words.shorten(bar.who.from?.reason ?? bar.who.from?.command ?? "", 160)),
      el("div", {}, `${words.time(bar.from)}, ${until} (${words.span(end - bar.from)})`));
    const box = this.element.getBoundingClientRect();
    this.#tip.style.left = `${Math.min(event.clientX - box.left + 14, box.width - 270)}px`;
    this.#tip.style.top = `${Math.min(event.clientY - box.top + 14, box.height - 90)}px`;
  }
}

/** How many hours are looked at. */
export function hours() {
  return HOURS.includes(address().hours) ? address().hours : "4";
}

/** Buttons to choose how many. */
export function hoursChoice() {
  const buttons = HOURS.map((count) => el("button", { class: "chip", "data-hours": count, onclick: () => go({ hours: count }) }, `${count} h`));
  return el("span", { class: "hours", role: "group", "aria-label": "Hours" }, buttons);
}

/** A text that fits. */
function fit(pen, text, width) {
  if (pen.measureText(text).width <= width) return text;
  let short = text.slice(0, Math.max(1, Math.floor(width / 6)));
  while (short.length > 1 && pen.measureText(`${short}…`).width > width) short = short.slice(0, -1);
  return short.length > 1 ? `${short}…` : "";
}

/** The end of a name that fits: units of a pool begin alike. */
function fitName(pen, name, width) {
  if (pen.measureText(name).width <= width) return name;
  let end = name.slice(-Math.max(1, Math.floor(width / 5)));
  while (end.length > 1 && pen.measureText(`…${end}`).width > width) end = end.slice(1);
  return `…${end}`;
}
