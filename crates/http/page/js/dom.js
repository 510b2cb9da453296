// Making elements. Whatever comes from the agent becomes text, never markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element: `el("p", {class: "x", onclick: f}, "text", child)`. */
export function el(tag, props = {}, ...children) {
  return fill(document.createElement(tag), props, children);
}

/** An element of a drawing. */
export function svg(tag, props = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), props, children);
}

function fill(element, props, children) {
  for (const [name, value] of Object.entries(props)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat()) {
    if (child !== undefined && child !== null && child !== false) element.append(child);
  }
  return element;
}

/** Sets a text if it is another one: what stays is not laid out again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Sets an attribute if it is another one. */
export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== value) element.setAttribute(name, value);
}

/** Once a frame at most. */
export function eachFrame(work) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      work();
    });
  };
}

/** Once things have been quiet for a while. */
export function whenQuiet(millis, work) {
  let timer = 0;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => work(...args), millis);
  };
}

/** A note that goes away by itself. */
export function note(text, kind = "info") {
  const shown = el("div", { class: `note ${kind}` }, text);
  document.getElementById("notes").append(shown);
  setTimeout(() => shown.remove(), kind === "error" ? 12_000 : 5_000);
}

/** Whether the page is dark, by the system or by choice. */
export function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}
