// Who waits for whom, drawn: on the left who waits, in the order of service, on the right who holds. A line to the right
// says who has what is wanted; an arc on the left says who is served before. The chain of a selected request stands out.

import { address, go } from "./address.js";
import { call } from "./api.js";
import { el, setText, svg } from "./dom.js";
import { requestFilter } from "./filter.js";
import { unitsOf } from "./lists.js";
import * as words from "./words.js";

const FIRST = 30;
const MOST = 90;
// With more lines than this, they are drawn faintly; those of the box one points at stand out.
const DENSE = 60;
const ROW = 58;
const HEIGHT = 46;
const WIDE = { box: 250, arcs: 76, between: 240 };
const WIDE_FROM = 2 * WIDE.box + WIDE.arcs + WIDE.between + 24;

/** How wide everything is; on a phone, as narrow as can be read. */
function frameFor(width) {
  if (!width || width >= WIDE_FROM - 200) return WIDE;
  const [arcs, between] = [30, 44];
  return { arcs, between, box: Math.max(100, Math.floor((width - arcs - between - 24) / 2)) };
}

export class Graph {
  element;
  #store;
  #drawing;
  #hint;
  #chain = null;
  #asked = "";
  #drawn = "";
  #frame = WIDE;

  constructor(store) {
    this.#store = store;
    this.#drawing = el("div", { class: "graph-drawing", tabindex: "0", role: "group", "aria-label": "Wait-for graph" });
    this.#hint = el("p", { class: "hint" });
    this.element = el("section", { class: "panel panel-graph", "aria-label": "Wait-for graph" },
      el("h2", {}, "Who waits for whom"), this.#hint, this.#drawing);
    new ResizeObserver(() => this.#draw()).observe(this.#drawing);
  }

  async update() {
    const waits = this.#store.waiting.has(address().selected) ? address().selected : "";
    if (waits !== this.#asked) {
      this.#asked = waits;
      this.#chain = null;
      if (waits) await this.#follow(waits);
    }
    this.#draw();
  }

  tick() {}

  async #follow(number) {
    try {
      const chain = await call("GET", `v1/explain/${encodeURIComponent(number)}`);
      if (this.#asked === number) this.#chain = chain;
    } catch {
      // Whoever waited has just been served, or may not look.
    }
  }

  /** The requests and grants that are shown, and who waits for whom. */
  #picture() {
    const nodes = new Map();
    const edges = [];
    const add = (one, kind) => {
      if (!nodes.has(one.request) && nodes.size < MOST) nodes.set(one.request, { one, kind });
    };
    const chain = new Set();
    if (this.#chain) {
      for (const one of this.#chain.chain) add(this.#store.waiting.get(one.request) ?? one, "waiting");
      for (const one of this.#chain.release) add(this.#store.grants.get(one.request) ?? one, "held");
      for (const number of nodes.keys()) chain.add(number);
    }
    const meant = requestFilter(this.#store, { ...address(), ...(this.#chain ? { text: "" } : {}) });
    let left = this.#chain ? 8 : FIRST;
    for (const one of this.#store.waiting.values()) {
      if (left <= 0) break;
      if (nodes.has(one.request) || !meant(one)) continue;
      add(one, "waiting");
      left -= 1;
    }
    for (const node of [...nodes.values()]) {
      if (node.kind !== "waiting") continue;
      for (const hindrance of node.one.hindrances) {
        for (const number of hindrance.holders) {
          const grant = this.#store.grants.get(number);
          if (grant) add(grant, "held");
        }
      }
    }
    for (const [number, node] of nodes) {
      if (node.kind !== "waiting") continue;
      for (const hindrance of node.one.hindrances) {
        for (const to of hindrance.holders) link(edges, nodes, number, to, "holds");
        // The last one before us stands for all: it waits for the others itself.
        const before = hindrance.ahead.filter((to) => nodes.get(to)?.kind === "waiting").at(-1);
        if (before) link(edges, nodes, number, before, "ahead");
      }
    }
    return { nodes: this.#inOrder(nodes), edges, chain };
  }

  /** Whoever waits in the order of service: what is selected stays where it is. */
  #inOrder(nodes) {
    const places = new Map();
    for (const number of this.#store.waiting.keys()) if (nodes.has(number)) places.set(number, places.size);
    const place = ([number]) => places.get(number) ?? places.size;
    return new Map([...nodes].sort((one, other) => place(one) - place(other)));
  }

  #draw() {
    const { nodes, edges, chain } = this.#picture();
    const selected = address().selected;
    this.#frame = frameFor(this.#drawing.clientWidth);
    const state = JSON.stringify([[...nodes.keys()], edges, selected, [...chain], this.#frame]);
    setText(this.#hint, this.#words(nodes.size));
    if (state === this.#drawn) return;
    this.#drawn = state;
    this.#drawing.replaceChildren(nodes.size ? this.#svg(nodes, edges, chain, selected) : "");
  }

  #words(count) {
    if (this.#chain) {
      const { circular, release, left_out: more } = this.#chain;
      const rest = more ? ` ${more} more are not shown.` : "";
      if (circular) return `${this.#asked} waits in a circle: this waiting will not end by itself.${rest}`;
      return `${this.#asked} waits until ${release.map((one) => one.request).slice(0, 8).join(", ") || "others"} give back what they hold.${rest}`;
    }
    if (!count) return this.#store.starts ? "Nobody waits." : "";
    const all = this.#store.waiting.size;
    return all > FIRST ? `The first ${FIRST} of ${all} that wait. Select one to see its chain.` : "Select a request to see its chain.";
  }

  #svg(nodes, edges, chain, selected) {
    const size = layOut(nodes, edges, this.#frame);
    const lines = edges.map((edge) => curve(nodes, edge, chain, this.#frame));
    const boxes = [...nodes].map(([number, node]) => this.#box(number, node, chain, selected));
    return svg("svg", { class: edges.length > DENSE ? "dense" : "", width: size.width, height: size.height, viewBox: `0 0 ${size.width} ${size.height}` },
      svg("defs", {}, arrow("arrow"), arrow("arrow-chain")), lines, boxes);
  }

  /** The lines from and to a box stand out. */
  #pointAt(number) {
    for (const edge of this.#drawing.querySelectorAll(".edge")) {
      edge.classList.toggle("near", edge.dataset.from === number || edge.dataset.to === number);
    }
  }

  #box(number, node, chain, selected) {
    const { one, kind, x, y } = node;
    const { box } = this.#frame;
    const what = kind === "held" ? unitsOf(one) : words.needs(one.needs);
    const marks = ["node", kind, chain.has(number) ? "chain" : "", chain.size && !chain.has(number) ? "faded" : "",
      number === selected ? "selected" : "", kind === "held" ? `state-${one.state}` : ""].filter(Boolean).join(" ");
    const open = () => go({ selected: number });
    const press = (event) => {
      if (event.key === "Enter" || event.key === " ") {
        event.preventDefault();
        open();
      }
    };
    const [mark, unmark] = [() => this.#pointAt(number), () => this.#pointAt(null)];
    return svg("g", { class: marks, transform: `translate(${x},${y})`, tabindex: "0", role: "button", onclick: open, onkeydown: press,
      onpointerenter: mark, onpointerleave: unmark, onfocus: mark, onblur: unmark,
      "aria-label": `${number}, ${kind}, ${words.shorten(what, 60)}, ${words.who(one.who)}` },
      svg("rect", { width: box, height: HEIGHT, rx: 8 }),
      svg("text", { x: 10, y: 19, class: "node-what" }, words.shorten(`${number}  ${what}`, Math.floor(box / 7.6))),
      svg("text", { x: 10, y: 36, class: "node-who" }, words.shorten(`${one.who.user}${one.who.from?.reason ? `: ${one.who.from.reason}` : ""}`, Math.floor(box / 6.9))));
  }
}

function link(edges, nodes, from, to, kind) {
  if (from === to || !nodes.has(to) || edges.some((edge) => edge.from === from && edge.to === to)) return;
  edges.push({ from, to, kind });
}

/** Two columns; whoever holds stands near the first who waits for it. */
function layOut(nodes, edges, { box, arcs, between }) {
  const all = [...nodes.values()];
  const waiting = all.filter((node) => node.kind === "waiting");
  const held = all.filter((node) => node.kind === "held");
  const rows = new Map(waiting.map((node, i) => [node.one.request, i]));
  const first = (node) => {
    const from = edges.filter((edge) => edge.to === node.one.request).map((edge) => rows.get(edge.from) ?? 0);
    return from.length ? Math.min(...from) : 0;
  };
  const near = new Map(held.map((node) => [node, first(node)]));
  held.sort((a, b) => near.get(a) - near.get(b));
  waiting.forEach((node, i) => Object.assign(node, { x: arcs, y: 16 + i * ROW }));
  let next = 16;
  held.forEach((node, i) => {
    const rest = (waiting.length - held.length + i) * ROW + 16;
    const wished = Math.min(16 + near.get(node) * ROW, Math.max(rest, next));
    Object.assign(node, { x: arcs + box + between, y: Math.max(next, wished) });
    next = node.y + ROW;
  });
  const height = Math.max(waiting.length * ROW + 16, next) + 16;
  return { width: arcs + 2 * box + between + 12, height };
}

function curve(nodes, { from, to, kind }, chain, { box, arcs, between }) {
  const [a, b] = [nodes.get(from), nodes.get(to)];
  const on = chain.has(from) && chain.has(to);
  const [y1, y2] = [a.y + HEIGHT / 2, b.y + HEIGHT / 2];
  const marks = ["edge", kind, on ? "chain" : "", chain.size && !on ? "faded" : ""].filter(Boolean).join(" ");
  const [x1, x2] = kind === "ahead" ? [a.x, b.x - 3] : [a.x + box, b.x - 3];
  const bend = kind === "ahead" ? -Math.min(arcs - 6, 18 + Math.abs(y1 - y2) / 9) : between / 2;
  const far = kind === "ahead" ? x2 + bend : x2 - bend;
  const path = `M${x1},${y1} C${x1 + bend},${y1} ${far},${y2} ${x2},${y2}`;
  return svg("path", { class: marks, d: path, "data-from": from, "data-to": to, "marker-end": `url(#${on ? "arrow-chain" : "arrow"})` });
}

function arrow(id) {
  return svg("marker", { id, viewBox: "0 0 8 8", refX: 7, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto-start-reverse" },
    svg("path", { d: "M0,0 L8,4 L0,8 z" }));
}
