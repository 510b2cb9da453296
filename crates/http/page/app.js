// The page: what the agent tells, shown in one of several views.

import { reserve } from "./js/actions.js";
import { address, go, onAddress } from "./js/address.js";
import { call, useToken } from "./js/api.js";
import { Details } from "./js/details.js";
import { ask, showKeys } from "./js/dialogs.js";
import { eachFrame, el, isDark, setText, whenQuiet } from "./js/dom.js";
import { prepare } from "./js/filter.js";
import { Graph } from "./js/graph.js";
import { History } from "./js/history.js";
import { Holders, Queue } from "./js/lists.js";
import { Log } from "./js/log.js";
import { Pools } from "./js/pools.js";
import { Store } from "./js/store.js";
import { Stream } from "./js/stream.js";
import { Timeline } from "./js/timeline.js";
import { Usage } from "./js/usage.js";
import * as words from "./js/words.js";

const $ = (id) => document.getElementById(id);
const store = new Store();
const history = new History(store);
const details = new Details(store, $("details"));

// Each view: its name in the address, its title, its panels, and what of the store it shows.
const VIEWS = [
  { name: "", title: "Overview", panels: [new Pools(store), new Queue(store), new Holders(store)], shows: ["pools", "grants", "waiting"] },
  { name: "graph", title: "Graph", panels: [new Graph(store)], shows: ["grants", "waiting"] },
  { name: "timeline", title: "Timeline", panels: [new Timeline(store, history)], shows: ["pools", "grants", "log"] },
  { name: "usage", title: "Usage", panels: [new Usage(store, history)], shows: ["pools", "grants", "log"] },
  { name: "log", title: "Events", panels: [new Log(store)], shows: ["log"] },
];
// Views that read a lot are brought up to date less often.
const SLOW = new Set(["usage", "timeline"]);

let view = null;
let dropped = null;

function updateView() {
  for (const panel of view.panels) panel.update();
}
const updateSlowly = whenQuiet(400, () => updateView());

function show() {
  const next = VIEWS.find((one) => one.name === address().view) ?? VIEWS[0];
  if (next !== view) {
    view = next;
    $("main").className = `view-${next.name || "overview"}`;
    $("main").replaceChildren(...next.panels.map((panel) => panel.element));
    for (const [i, link] of [...$("views").children].entries()) {
      if (VIEWS[i] === next) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }
  for (const key of ["text", "pool", "user"]) {
    const field = $(`filter-${key}`);
    if (field.value !== address()[key]) field.value = address()[key];
  }
  $("filter-none").hidden = !address().text && !address().pool && !address().user;
  for (const button of document.querySelectorAll("[data-hours]")) {
    button.setAttribute("aria-pressed", String(button.dataset.hours === (address().hours || "4")));
  }
  details.update();
  updateView();
}

function changed(names) {
  if (SLOW.has(view.name)) updateSlowly();
  else if (view.shows.some((name) => names.has(name))) updateView();
  details.update();
  if (names.has("log")) history.follow(store.log);
  count();
  choices();
  $("reserve").hidden = !store.may("reserve");
}

function count() {
  const [held, waiting] = [store.grants.size, store.waiting.size];
  const parts = [`${held} held`, `${waiting} waiting`];
  if (store.agent) parts.push(`you are ${words.shorten(store.agent.you, 40)}`, `agent ${words.shorten(store.agent.version, 20)}`);
  if (store.agent?.stopping) parts.push("stopping");
  setText($("counts"), parts.join(" · "));
  const title = waiting ? `holdall · ${held} held, ${waiting} waiting` : `holdall · ${held} held`;
  if (document.title !== title) document.title = title;
}

/** Names to choose from in the filters. */
const choices = whenQuiet(1000, () => {
  const users = new Set();
  for (const one of [...store.grants.values(), ...store.waiting.values()]) if (users.size < 200) users.add(one.who.user);
  offer($("pool-names"), [...store.pools.keys()].slice(0, 500));
  offer($("user-names"), [...users].sort());
});

function offer(list, names) {
  const said = names.join("\n");
  if (list.dataset.said === said) return;
  list.dataset.said = said;
  list.replaceChildren(...names.map((name) => el("option", { value: name })));
}

const stream = new Stream({
  event: (type, data) => {
    store.take(type, data);
    if (type === "snapshot") {
      document.body.classList.remove("unknown");
      prepare(store);
    }
  },
  state: (state, problem) => {
    $("link").dataset.state = state;
    const wantsToken = state === "denied" && problem.status === 401;
    setText($("link"), { connecting: "connecting", live: "live", away: "reconnecting", denied: wantsToken ? "wants a token" : "not allowed" }[state]);
    if (state === "live") dropped = null;
    if (state === "away") dropped ??= Date.now();
    const since = dropped !== null && store.agent !== null;
    $("stale").hidden = !since && (state !== "denied" || wantsToken);
    if (state === "denied") setText($("stale"), problem.message);
    else if (since) setText($("stale"), `The agent has not answered since ${words.time(dropped)}; what you see is from then. Trying again.`);
    if (wantsToken) askToken();
  },
});

let asking = false;

/** Asks for a token until one is right. */
async function askToken() {
  if (asking) return;
  asking = true;
  await ask({
    title: "Token",
    text: ["This agent wants a token: ", el("code", {}, "holdall token add NAME --may view"), " makes one there. It is kept in the memory of this page, and nowhere else."],
    button: "Open",
    closable: false,
    fields: [{ name: "token", label: "Token", type: "password", required: true }],
    act: async ({ token }) => {
      useToken(token);
      try {
        store.setAgent(await call("GET", "v1/agent"));
      } catch (problem) {
        useToken(null);
        throw problem.status === 401 ? new Error("This token is not known here.") : problem;
      }
    },
  });
  asking = false;
  $("stale").hidden = true;
  stream.start();
}

const KEYS = [
  ["1 – 5", "views"], ["/", "search"], ["r", "reserve"], ["t", "dark or light"], ["Esc", "close"],
  ["↑ ↓ Enter", "in lists"], ["← ↑ ↓ →", "from unit to unit"], ["?", "this"],
];

function press(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  const typing = event.target.matches("input, textarea, select");
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else if (address().selected) go({ selected: "" });
    return;
  }
  if (typing) return;
  const chosen = VIEWS[Number(event.key) - 1];
  if (chosen) go({ view: chosen.name });
  else if (event.key === "/") $("filter-text").focus();
  else if (event.key === "?") showKeys(KEYS);
  else if (event.key === "t") turn();
  else if (event.key === "r" && store.may("reserve")) reserve();
  else return;
  event.preventDefault();
}

/** Dark or light, as the system is, or as was chosen here before. */
function turn() {
  const root = document.documentElement;
  root.dataset.theme = isDark() ? "light" : "dark";
  try {
    localStorage.setItem("theme", root.dataset.theme);
  } catch {
    // Then it is only for now.
  }
  updateView();
}

function begin() {
  try {
    const theme = localStorage.getItem("theme");
    if (theme === "dark" || theme === "light") document.documentElement.dataset.theme = theme;
  } catch {
    // The system's, then.
  }
  $("views").replaceChildren(...VIEWS.map((one, i) => el("a", {
    href: one.name ? `?view=${one.name}` : "?", title: `${one.title} (${i + 1})`,
    onclick: (event) => {
      if (event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
      event.preventDefault();
      go({ view: one.name });
    },
  }, one.title)));
  document.querySelector(".brand").addEventListener("click", (event) => {
    event.preventDefault();
    go({ view: "", pool: "", user: "", text: "", selected: "", hours: "" });
  });
  for (const key of ["text", "pool", "user"]) {
    $(`filter-${key}`).addEventListener("input", (event) => go({ [key]: event.target.value }, { typing: true }));
  }
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("filter-none").addEventListener("click", (event) => {
    event.preventDefault();
    go({ text: "", pool: "", user: "" });
  });
  $("theme").addEventListener("click", turn);
  $("help").addEventListener("click", () => showKeys(KEYS));
  $("reserve").addEventListener("click", () => reserve());
  addEventListener("keydown", press);
  onAddress(eachFrame(show));
  store.listen(changed);
  show();
  stream.start();
  setInterval(() => view.panels.forEach((panel) => panel.tick()), 1000);
  addEventListener("online", () => !asking && stream.start());
}

begin();
