// Which of all things are meant.

import { changeOf } from "./words.js";

const texts = new WeakMap();

/** All there is to find in a grant or a request, in small letters. */
function textOf(one) {
  let text = texts.get(one);
  if (text === undefined) {
    const units = (one.taken ?? []).flatMap((taken) => taken.units.map((unit) => unit.name));
    const { user, host, pid, from } = one.who;
    const all = [one.request, ...one.needs, ...units, user, host, pid, from?.command, from?.name, from?.reason];
    text = all.filter(Boolean).join("\n").toLowerCase();
    texts.set(one, text);
  }
  return text;
}

/** Prepares for a search while nothing else is to be done. */
export function prepare(store) {
  const all = [...store.grants.values(), ...store.waiting.values()];
  let next = 0;
  const some = (deadline) => {
    while (next < all.length && deadline.timeRemaining() > 2) textOf(all[next++]);
    if (next < all.length) later(some);
  };
  // Some browsers have no such thing, and prepare when it is searched.
  const later = (work) => globalThis.requestIdleCallback?.(work);
  later(some);
}

/** A test for grants and requests. */
export function requestFilter(store, { pool, user, text }) {
  const wanted = text.trim().toLowerCase();
  return (one) =>
    (!user || one.who.user === user) &&
    (!pool || concerns(store, one, pool)) &&
    (!wanted || textOf(one).includes(wanted));
}

function concerns(store, one, pool) {
  if (one.taken) return one.taken.some((taken) => taken.name === pool);
  return one.needs.some((need) => store.poolOf(need.split(":")[0]) === pool);
}

/** A test for units of a pool: what they are called, and who has them. */
export function unitFilter(store, { user, text }) {
  const wanted = text.trim().toLowerCase();
  if (!user && !wanted) return null;
  return (name, holders, extra = "") => {
    const theirs = holders.map((number) => store.grants.get(number)).filter(Boolean);
    if (user && !theirs.some((grant) => grant.who.user === user)) return false;
    if (!wanted || name.toLowerCase().includes(wanted) || extra.toLowerCase().includes(wanted)) return true;
    return theirs.some((grant) => textOf(grant).includes(wanted));
  };
}

/** A test for lines of the audit log. */
export function lineFilter(store, { pool, user, text }) {
  const wanted = text.trim().toLowerCase();
  return (line) => {
    if (user && line.who?.user !== user) return false;
    if (pool) {
      const names = [...(line.needs ?? []).map((need) => need.split(":")[0]), ...(line.taken ?? []).map((taken) => taken.name), changeOf(line)?.name ?? ""];
      if (!names.some((name) => store.poolOf(name) === pool)) return false;
    }
    if (!wanted) return true;
    let found = texts.get(line);
    if (found === undefined) {
      found = JSON.stringify(line).toLowerCase();
      texts.set(line, found);
    }
    return found.includes(wanted);
  };
}
