// The bars of a timeline: their list, their length, and their meaning in words. Nothing is drawn
// here.
// @ts-check

import { el, time } from "../lib/dom.js";
import { count, length, moment, ms, nowMs, number, words } from "../lib/format.js";
import { extent, pieces } from "../lib/scale.js";

/** @import { Bar as StoredBar, Timeline } from "../lib/api-types.js" */
/** @import { Piece, Span } from "../lib/scale.js" */
/** @typedef {Partial<StoredBar> & Pick<StoredBar, "kind" | "key" | "name" | "status" | "start" | "end" | "attempt" | "generation" | "lane"> & { found_dead?: string | null }} Bar */

const WORKS = new Set(["attempt", "step", "joined"]);
/** @type {Record<string, string>} */
const FOUND = { died: "found dead", "lease expired": "its lease had expired" };
const LOST = new Set(Object.keys(FOUND));
const HEADS = ["What", "Which", "Status", "Attempt", "Start", "After", "Took"];

/** The end of a bar; now, if it has none.
 *  @type {(bar: Bar, now: number) => number} */
export const ended = (bar, now) => (bar.end ? ms(bar.end) : now);

/** The key of a bar, stable across answers.
 *  @param {Bar} bar */
export function idOf(bar) {
  return [bar.kind, bar.key, bar.attempt, bar.generation, bar.start].join("|");
}

/** All bars of a timeline, with one for each process that owned the run.
 *  @param {Timeline} told
 *  @returns {Bar[]} */
export function all({ bars, executions }) {
  const had = executions.map((one) => ({
    kind: "execution",
    key: "",
    name: one.owner,
    status: one.how,
    start: one.start,
    end: one.end,
    found_dead: one.found_dead,
    attempt: 0,
    generation: 0,
    lane: -1,
  }));
  return [...had, ...bars];
}

/** All bars in order of time.
 *  @param {Timeline} told */
export function inOrder(told) {
  return all(told).toSorted((one, other) => ms(one.start) - ms(other.start));
}

/** The start and the current end of a timeline.
 *  @param {Timeline} told */
export function span(told) {
  const start = ms(told.start);
  const now = told.open ? Math.max(nowMs(), ms(told.end)) : ms(told.end);
  return { start, now: Math.max(now, start + 1) };
}

/** Return the axis, and whether it is folded: as requested, or automatically when most of the time
 *  is idle.
 *  @param {Timeline} told
 *  @param {boolean | null} asked
 *  @returns {{ axis: Piece[], folded: boolean }} */
export function axisOf(told, asked) {
  const { start, now } = span(told);
  const busy = told.bars
    .filter((bar) => WORKS.has(bar.kind))
    .map((bar) => /** @type {Span} */ ([ms(bar.start), workedUntil(told, bar, now)]));
  const worked = extent(pieces(start, now, busy, true));
  const folded = asked ?? worked < (now - start) * 0.5;
  return { axis: pieces(start, now, busy, folded), folded };
}

/** The end of a step's work: a step in doubt stops working when the run is held.
 *  @param {Timeline} told
 *  @param {Bar} bar
 *  @param {number} now */
function workedUntil(told, bar, now) {
  if (bar.end) return ms(bar.end);
  const held = told.bars.find((one) => one.kind === "held" && ms(one.start) >= ms(bar.start));
  return held ? ms(held.start) : now;
}

// -- words --------------------------------------------------------------------------------------

/** A bar in one sentence or two.
 *  @param {Timeline} told
 *  @param {Bar} bar */
export function inWords(told, bar) {
  const { start, now } = span(told);
  const took = length((ended(bar, now) - ms(bar.start)) / 1000);
  const after = length((ms(bar.start) - start) / 1000);
  const when = `${moment(bar.start)} (+${after}), ${took}${bar.end ? "" : " so far"}`;
  if (bar.kind === "execution") return `${bar.name} owned the run: ${ending(bar)}. ${when}`;
  if (bar.kind === "gap" && bar.status !== "queued") return lost(bar, took);
  if (bar.kind === "gap") return `Nobody owned the run: ${bar.name}. ${when}`;
  if (bar.kind === "held") return `Held: ${words(bar.status)}. ${when}`;
  if (bar.kind === "joined") return `${count(bar.count ?? 0, "earlier bar")}, joined. ${when}`;
  if (bar.kind === "wait") return `${bar.key} waits for: ${bar.name}, ${words(bar.status)}. ${when}`;
  const what = bar.kind === "attempt" ? `attempt ${bar.attempt} of ${bar.key}` : bar.key;
  const more = bar.kind === "step" && bar.attempt > 1 ? `, ${count(bar.attempt, "attempt")}` : "";
  const left = bar.superseded ? `, superseded (generation ${bar.generation})` : "";
  const known = bar.known_until
    ? `. It is known to have been at work until ${moment(bar.known_until)}`
    : "";
  return `${bar.effect ? "effect " : ""}${what}: ${words(bar.status)}${more}${left}${known}. ${when}`;
}

/** The end of an execution. For a dead process, the time of its last write is known, not the time
 *  of its death.
 *  @param {Bar} bar */
function ending(bar) {
  if (!bar.end || !LOST.has(bar.status)) return words(bar.status);
  const found = bar.found_dead ? `; ${FOUND[bar.status]} ${moment(bar.found_dead)}` : "";
  return `${words(bar.status)}, last sign of life ${moment(bar.end)}${found}`;
}

/** The interval in which a process died, at an unknown time.
 *  @param {Bar} bar
 *  @param {string} took */
function lost(bar, took) {
  const found = FOUND[words(bar.status)];
  const until = bar.end ? `${found} ${moment(bar.end)}` : `${found}, and no process has claimed the run yet`;
  const long = bar.end ? took : `${took} so far`;
  return `Last sign of life ${moment(bar.start)}; ${until}. In between it may have been at work. ${long}`;
}

/** A summary of the timeline in one line.
 *  @param {Timeline} told */
export function summary(told) {
  const gaps = told.bars.filter((bar) => bar.kind === "gap" && bar.status !== "queued").length;
  const parts = [`${count(told.steps, "step")} called`, `executed ${count(told.executions.length, "time")}`];
  if (gaps) parts.push(count(gaps, "gap"));
  if (told.joined) parts.push(`the oldest ${number(told.joined)} bars are joined into one`);
  if (told.borrowed) {
    parts.push(`${count(told.borrowed, "outcome")} borrowed from the run that it was forked from`);
  }
  return `${parts.join(" · ")}. Point at a bar, or use the arrow keys.`;
}

/** The bars as a table.
 *  @param {Timeline} told */
export function barTable(told) {
  const { start, now } = span(told);
  const rows = inOrder(told).map((bar) => row(bar, start, now));
  const heads = HEADS.map((name) => el("th", { scope: "col" }, name));
  return el(
    "div",
    { class: "table" },
    el("table", null, el("thead", null, el("tr", null, heads)), el("tbody", null, rows)),
  );
}

/**
 * @param {Bar} bar
 * @param {number} start
 * @param {number} now
 */
function row(bar, start, now) {
  const took = length((ended(bar, now) - ms(bar.start)) / 1000);
  return el(
    "tr",
    null,
    el("td", null, words(bar.kind)),
    el("td", { class: "mono" }, bar.kind === "wait" ? `${bar.key}: ${bar.name}` : bar.key || bar.name),
    el("td", null, words(bar.status)),
    el("td", { class: "num" }, bar.attempt || ""),
    el("td", { class: "nowrap" }, time(bar.start)),
    el("td", { class: "num" }, `+${length((ms(bar.start) - start) / 1000)}`),
    el("td", { class: "num" }, bar.end ? took : `${took} so far`),
  );
}
