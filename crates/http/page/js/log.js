// The audit log: what has happened, newest first; older lines come as one scrolls.

import { address, go } from "./address.js";
import { call, query } from "./api.js";
import { el, setText, whenQuiet } from "./dom.js";
import { lineFilter } from "./filter.js";
import { unitsOf } from "./lists.js";
import { VirtualList } from "./virtual.js";
import * as words from "./words.js";

const PAGE = 200;
/** Where lines are of two rows, as in views.css. */
const NARROW = matchMedia("(max-width: 760px)");

export class Log {
  element;
  #store;
  #list;
  #hint = el("p", { class: "hint" });
  #count = el("span", { class: "panel-count" });
  #older = [];
  #cursor = null;
  #asked = null;
  #loading = false;
  #failed = false;
  #ask = whenQuiet(200, () => this.#begin());

  constructor(store) {
    this.#store = store;
    this.#list = new VirtualList({
      label: "Events",
      height: () => (NARROW.matches ? 54 : 34),
      key: (line) => line.key,
      draw: (line, old) => old ?? drawLine(line),
      onOpen: (line) => line.request && go({ selected: line.request }),
      onEnd: () => this.#more(),
    });
    NARROW.addEventListener("change", () => this.#list.set(this.#list.items));
    this.element = el("section", { class: "panel panel-log", "aria-label": "Events" },
      el("h2", {}, "Events ", this.#count), this.#hint, this.#list.element, el("p", { class: "nothing" }, "Nothing found."));
  }

  update() {
    const { pool, user, text } = address();
    const { gaps, starts } = this.#store;
    const asked = JSON.stringify([pool, user, text, gaps, this.#failed ? starts : 0]);
    if (asked !== this.#asked) {
      this.#asked = asked;
      this.#ask();
    }
    this.#show();
  }

  tick() {}

  #begin() {
    [this.#older, this.#cursor] = [[], ""];
    this.#list.element.scrollTop = 0;
    this.#more();
  }

  async #more() {
    if (this.#loading || this.#cursor === null) return;
    const asked = this.#asked;
    this.#loading = true;
    try {
      const { pool, user, text } = address();
      const answer = await call("GET", `v1/audit${query({ pool, user, text: text.trim(), limit: PAGE, cursor: this.#cursor })}`);
      if (asked === this.#asked) {
        this.#older.push(...answer.lines);
        this.#cursor = answer.cursor ?? null;
      }
      this.#failed = false;
      setText(this.#hint, "");
    } catch (problem) {
      [this.#cursor, this.#failed] = [null, true];
      setText(this.#hint, `The audit log cannot be read: ${problem.message}`);
    } finally {
      this.#loading = false;
    }
    if (asked === this.#asked) this.#show();
    else this.#begin();
  }

  /** What the stream has told, then what was loaded; each line once. */
  #show() {
    const meant = lineFilter(this.#store, address());
    const lines = [];
    const seen = new Set();
    for (const line of [...this.#store.log, ...this.#older]) {
      // Of others' requests less is told later.
      line.key ??= `${line.at} ${line.what} ${line.request ?? line.detail ?? ""}`;
      if (seen.has(line.key) || !meant(line)) continue;
      seen.add(line.key);
      lines.push(line);
    }
    setText(this.#count, `${lines.length}${this.#cursor ? "+" : ""}`);
    this.element.classList.toggle("empty", lines.length === 0);
    this.#list.set(lines);
  }
}

function drawLine(line) {
  const change = words.changeOf(line);
  const what = change?.text ?? (line.taken?.length ? unitsOf(line) : words.needs(line.needs ?? []));
  const by = line.who ? words.who(line.who) : "";
  const said = line.who?.from?.reason;
  const reason = said ? `: ${said}` : "";
  return el("div", { class: "row line" },
    el("time", {}, words.time(line.at)),
    el("span", { class: `what-${/^[a-z-]+$/.test(line.what) ? line.what : "other"} tag` }, words.shorten(line.what, 20)),
    el("span", { class: "number" }, line.request ?? ""),
    el("b", { class: "what" }, words.shorten(what, 120)),
    el("span", { class: "who" }, words.shorten(`${by}${reason}`, 200)),
    el("span", { class: "because" }, change || line.detail === said ? "" : words.shorten(line.detail ?? "", 200)));
}
