// Formats for people: times, durations, numbers, money. Pure: no nodes.
// @ts-check

// -- text ---------------------------------------------------------------------------------------

/** Return text cut to this length, with the number of omitted characters.
 *  @param {string} text
 *  @param {number} chars */
export function clipped(text, chars = 400) {
  if (text.length <= chars) return text;
  return `${text.slice(0, chars)}… (${number(text.length - chars)} more characters)`;
}

/** The text of an identifier: without underscores.
 *  @param {string | null | undefined} name */
export function words(name) {
  return String(name ?? "").replaceAll("_", " ");
}

// -- times --------------------------------------------------------------------------------------

let aheadMs = 0;

/** Use the server's clock.
 *  @param {string} now */
export function setClock(now) {
  aheadMs = new Date(now).getTime() - Date.now();
}

/** The current time of the server, in milliseconds. */
export function nowMs() {
  return Date.now() + aheadMs;
}

/** A time in milliseconds, from the ISO string of the API; with microseconds, which a Date drops.
 *  @param {string | number} at */
export function ms(at) {
  if (typeof at === "number") return at;
  const micros = /\.\d{3}(\d{1,3})/.exec(at)?.[1] ?? "0";
  return new Date(at).getTime() + Number(micros.padEnd(3, "0")) / 1000;
}

/** @type {(value: number) => string} */
const two = (value) => String(value).padStart(2, "0");

/** A time in UTC, to the second, as the command line shows it.
 *  @param {string | number} at */
export function moment(at) {
  return new Date(ms(at)).toISOString().slice(0, 19).replace("T", " ") + " UTC";
}

/** A time of day in the reader's zone, with the date if it is not today.
 *  @param {string | number} at */
export function clock(at) {
  const date = new Date(ms(at));
  const today = new Date(nowMs());
  const told = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  if (date.toDateString() === today.toDateString()) return told;
  const day = `${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return date.getFullYear() === today.getFullYear()
    ? `${day} ${told}`
    : `${date.getFullYear()}-${day} ${told}`;
}

/** The time since or until a moment.
 *  @param {string | number} at */
export function agoText(at) {
  const seconds = (nowMs() - ms(at)) / 1000;
  if (Math.abs(seconds) < 1) return "just now";
  return seconds < 0 ? `in ${length(-seconds)}` : `${length(seconds)} ago`;
}

/** A duration in a readable unit.
 *  @param {number | null | undefined} seconds */
export function length(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0.0995) return `${Math.round(seconds * 1000)} ms`;
  /** @type {[string, number, number][]} */
  const units = [["s", 1, 120], ["min", 60, 7200], ["h", 3600, 172800]];
  for (const [unit, size, limit] of units) {
    if (seconds >= limit) continue;
    const count = seconds / size;
    return count < 10 && unit === "s" ? `${count.toFixed(1)} s` : `${Math.round(count)} ${unit}`;
  }
  return `${Math.round(seconds / 86400)} days`;
}

// -- numbers ------------------------------------------------------------------------------------

/** A number with thousands separators.
 *  @param {number | string | null | undefined} value */
export function number(value) {
  if (value === null || value === undefined) return "–";
  return Number(value).toLocaleString("en-US", { maximumFractionDigits: 2 });
}

/** An amount in US dollars; small amounts keep their significant digits.
 *  @param {number | string | null | undefined} usd */
export function money(usd) {
  if (usd === null || usd === undefined) return "–";
  const value = Number(usd);
  if (value === 0 || value >= 1) return `$${value.toFixed(2)}`;
  return `$${value.toFixed(value >= 0.01 ? 3 : 5)}`;
}

/** A number with its noun.
 *  @param {number} value
 *  @param {string} noun
 *  @param {string} plural */
export function count(value, noun, plural = `${noun}s`) {
  return `${number(value)} ${value === 1 ? noun : plural}`;
}

/** A number of bytes.
 *  @param {number | null | undefined} value */
export function bytes(value) {
  if (value === null || value === undefined) return "–";
  if (value < 1024) return `${value} B`;
  const [size, unit] = value < 1 << 20 ? [1024, "KiB"] : [1 << 20, "MiB"];
  return `${(value / size).toFixed(value / size < 10 ? 1 : 0)} ${unit}`;
}
