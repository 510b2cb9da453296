// What is being looked at is in the address, so that it can be sent to a colleague.

const KEYS = ["view", "pool", "user", "text", "selected", "hours"];

let current = read();
const listeners = new Set();

function read() {
  const query = new URLSearchParams(location.search);
  return Object.fromEntries(KEYS.map((key) => [key, query.get(key) ?? ""]));
}

function tell() {
  for (const listener of listeners) listener(current);
}

/** What the address says. */
export function address() {
  return current;
}

export function onAddress(listener) {
  listeners.add(listener);
}

/** Changes it. What one types makes no history. */
export function go(changes, { typing = false } = {}) {
  const next = { ...current, ...changes };
  if (KEYS.every((key) => next[key] === current[key])) return;
  current = next;
  const query = new URLSearchParams(KEYS.filter((key) => next[key]).map((key) => [key, next[key]]));
  const url = query.size ? `?${query}` : location.pathname;
  if (typing) history.replaceState(null, "", url);
  else history.pushState(null, "", url);
  tell();
}

addEventListener("popstate", () => {
  current = read();
  tell();
});
