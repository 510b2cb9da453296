// How things are put into words, as the command line does.

// Control characters, and those that turn the direction of writing.
const HARMFUL = /[\u0000-\u001f\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** A text of somebody else's that cannot pass for something else. */
export function clean(text) {
  return String(text ?? "").replace(HARMFUL, " ");
}

/** The same, of at most so many characters. */
export function shorten(text, most = 160) {
  const letters = String(text ?? "").slice(0, most * 2 + 2);
  const harmless = [...clean(letters)];
  return harmless.length <= most ? harmless.join("") : harmless.slice(0, most - 1).join("") + "…";
}

/** A span of time in its two largest units. */
export function span(millis) {
  const s = Math.max(0, Math.floor(millis / 1000));
  const two = (n) => String(n).padStart(2, "0");
  if (s < 60) return `${s}s`;
  if (s < 3600) return `${Math.floor(s / 60)}m${two(s % 60)}s`;
  if (s < 86_400) return `${Math.floor(s / 3600)}h${two(Math.floor(s / 60) % 60)}m`;
  return `${Math.floor(s / 86_400)}d${two(Math.floor(s / 3600) % 24)}h`;
}

/** Milliseconds of `90`, `90s`, `15m`, `2h`, `1d`, `1h30m`; undefined if it is none. */
export function readSpan(text) {
  const parts = [...text.trim().matchAll(/(\d+(?:\.\d+)?)\s*(ms|[smhd]?)/gy)];
  if (!parts.length || parts.map((part) => part[0]).join("").length !== text.trim().length) return undefined;
  const unit = { ms: 1, s: 1000, "": 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };
  const sum = parts.reduce((all, part) => all + Number(part[1]) * unit[part[2]], 0);
  return sum > 0 && Number.isFinite(sum) ? Math.round(sum) : undefined;
}

const CLOCK = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const DAY = new Intl.DateTimeFormat(undefined, { month: "short", day: "numeric" });

/** A time of day, with the date if it is not today's. */
export function time(millis) {
  const at = new Date(millis);
  if (Number.isNaN(at.getTime())) return "?";
  const today = at.toDateString() === new Date().toDateString();
  return today ? CLOCK.format(at) : `${DAY.format(at)}, ${CLOCK.format(at)}`;
}

/** A fence as people read it. It may be larger than a JavaScript number can tell. */
export function fence(text) {
  try {
    const value = BigInt(text);
    return `${value >> 32n}-${value & 0xffffffffn}`;
  } catch {
    return clean(text);
  }
}

/** So many of something. */
export function count(number, one) {
  return `${number} ${one}${number === 1 ? "" : "s"}`;
}

/** Needs as they were written. */
export function needs(all, most = 160) {
  return shorten(all.slice(0, 60).join(" ") + (all.length > 60 ? " …" : ""), most);
}

/** Who somebody is, in a few words. */
export function who(one) {
  const name = one.from?.name ? `${shorten(one.from.name, 40)}, ` : "";
  const process = one.pid ? `, pid ${one.pid}` : "";
  const command = one.from?.command ? `, ${shorten(one.from.command, 60)}` : "";
  return `${name}${shorten(one.user, 60)}${process}${command}`;
}

/** Who somebody is, and what for. */
export function said(one) {
  const reason = one.from?.reason ? `: ${shorten(one.from.reason, 120)}` : "";
  const name = one.from?.name ? ` (${shorten(one.from.name, 40)})` : "";
  return `${shorten(one.user, 40)}${name}${reason}`;
}

/** What a line of the audit log says of a change of the pools: what was done, to what, and the rest. */
export function changeOf(line) {
  if (line.what !== "pool") return null;
  try {
    const [[verb, change]] = Object.entries(JSON.parse(line.detail));
    const { kind, units, drained, force } = change;
    const made = kind?.Numbered ?? kind?.Named?.join(" ");
    const rest = [made !== undefined && ` (${made})`, units !== undefined && ` to ${units}`, drained && `: ${drained.reason}`, force && ", by force"].filter(Boolean);
    return { name: String(change.name), text: `${verb.toLowerCase()} ${change.name}${rest.join("")}` };
  } catch {
    return null;
  }
}

/** Why a unit is given to nobody. */
export function drained(why, now) {
  const left = why.until ? `, ${span(why.until - now)} left` : "";
  return `drained by ${shorten(why.by, 60)}${left}: ${shorten(why.reason, 200)}`;
}

function list(numbers, total) {
  const more = Math.max(total, numbers.length) - 4;
  return numbers.slice(0, 4).join(", ") + (more > 0 ? ` and ${more} more` : "");
}

/** What keeps a request from one of its needs. */
export function hindrance(one, now) {
  const why = [];
  if (one.holders.length) why.push(`held by ${list(one.holders, one.holders_total)}`);
  for (const { name, drained: reason } of one.drained) why.push(`${clean(name)} is ${drained(reason, now)}`);
  const ahead = list(one.ahead, one.ahead_total);
  const lacks = one.wanted > 1 ? ` (${one.free} of ${one.wanted} free)` : "";
  if (!why.length) return ahead ? `${one.need}: kept for ${ahead}${lacks}` : `${one.need}${lacks}`;
  return `${one.need}: ${why.join(", ")}${one.ahead.length ? `, then ${ahead}` : ""}${lacks}`;
}

/** What keeps a request, need by need. */
export function because(waiting, now) {
  return waiting.hindrances.slice(0, 8).map((one) => hindrance(one, now)).join("; ");
}

/** A state in words. */
export function state(grant, now) {
  if (grant.state === "reserved" && grant.until) return `reserved, ${span(grant.until - now)} left`;
  if (grant.state === "ending" && grant.pids.length) return `ending, waits for ${grant.pids.slice(0, 4).join(", ")}`;
  return grant.state;
}

/** A hue for a name, always the same. */
export function hue(text) {
  let sum = 7;
  for (const letter of String(text).slice(0, 100)) sum = (sum * 31 + letter.codePointAt(0)) % 3600;
  return (sum * 137.5) % 360;
}
