// The journal: entries in order, which open on a click; new ones appear at the end in follow mode.
// @ts-check

import { get } from "../lib/api.js";
import { clear, el, say, time } from "../lib/dom.js";
import { number, words } from "../lib/format.js";
import { errorBox } from "./explanation.js";
import { part, sourceOf } from "../lib/numbers.js";
import { failed } from "../lib/shell.js";
import { isClipped, preview } from "../lib/tree.js";
import { fieldView, valueView } from "../lib/values.js";

/** @import { EntryData } from "../lib/api-types.js" */
/** @typedef {object} State
 *  @property {string} id
 *  @property {number} first
 *  @property {number} last
 *  @property {string | null} step
 *  @property {boolean} loaded
 *  @property {boolean} following
 *  @property {boolean} atEnd
 *  @property {boolean} pinned
 *  @property {HTMLElement | null} near
 *  @property {HTMLElement} list
 *  @property {HTMLElement} before
 *  @property {HTMLElement} behind
 *  @property {HTMLElement} filter
 *  @property {HTMLElement} told */

const PART = 200;
const MOST = 500;
const SHOWN_MAX = 2000;
const GOOD = new Set(["step_completed", "run_completed", "step_settled"]);
const BAD = new Set(["step_failed", "run_failed", "message_discarded"]);
const WARN = new Set([
  "step_in_doubt",
  "run_held",
  "finding_noted",
  "drift_found",
  "cancel_requested",
  "wait_timed_out",
]);
const VALUES = ["input", "args", "result", "value", "state"];

/** Return the journal of a run. `load(toEnd)` reads its end, `add(entry)` adds a new entry.
 *  @param {string} id */
export function journalView(id) {
  /** @type {State} */
  const state = {
    id,
    first: Infinity,
    last: 0,
    step: null,
    loaded: false,
    following: true,
    atEnd: true,
    pinned: false,
    near: null,
    list: el("ol", { class: "journal", "aria-label": "Entries, oldest first" }),
    before: el("div", { class: "pages" }),
    behind: el("div", { class: "pages" }),
    filter: el("span", { class: "row", hidden: true }),
    told: el("span", { class: "faint", role: "status" }),
  };
  const follow = el("input", { type: "checkbox", id: "follow" });
  follow.checked = true;
  follow.addEventListener("change", () => {
    state.following = follow.checked;
    if (follow.checked) toEndOf(state);
  });
  const followed = el("label", { class: "check", for: "follow" }, follow, "Follow new entries");
  keepPinned(state);
  const head = el(
    "div",
    { class: "spread" },
    el("div", { class: "row" }, state.told, state.filter),
    followed,
  );
  return {
    node: el("div", { class: "stack-small" }, head, state.before, state.list, state.behind),
    load: (/** @type {boolean} */ toEnd) => load(state, toEnd),
    add: (/** @type {EntryData} */ entry) => add(state, entry),
    only: (/** @type {string} */ step) => only(state, step),
    /** Show the whole journal of an ended run, which writes no more entries.
     *  @param {boolean} is */
    ended(is) {
      followed.hidden = is;
      state.list.classList.toggle("is-whole", is);
    },
    get last() {
      return state.last;
    },
  };
}

// -- loading ------------------------------------------------------------------------------------

/** Show the end of the journal; later entries arrive with the stream.
 *  @param {State} state
 *  @param {boolean} toEnd */
async function load(state, toEnd = true) {
  state.loaded = true;
  empty(state);
  const { last } = await get("run/history", { id: state.id, limit: 1 });
  await read(state, Math.max(0, last - PART), PART);
  if (toEnd && state.following) toEndOf(state);
  else if (state.first > 1) bottom(state);
}

/** @param {State} state */
function empty(state) {
  state.list.replaceChildren();
  state.first = Infinity;
  state.atEnd = true;
}

/**
 * @param {State} state
 * @param {number} after
 * @param {number} limit
 */
async function read(state, after, limit) {
  const answer = await get("run/history", { id: state.id, after, limit, step: state.step });
  for (const entry of answer.entries ?? []) put(state, entry);
  count(state);
  around(state);
  return answer;
}

/** The buttons before and after the shown entries.
 *  @param {State} state */
function around(state) {
  const button = (/** @type {string} */ text, /** @type {() => Promise<any>} */ action) => {
    const made = el("button", { type: "button", class: "quiet" }, text);
    made.addEventListener("click", () => action().catch(failed));
    return made;
  };
  const many = Math.min(PART, state.first - 1);
  const isMore = state.first > 1 && !state.step;
  clear(
    state.before,
    isMore && button(`Show ${number(many)} earlier entries`, () => earlier(state)),
    isMore && state.first > PART + 1 && button("From the beginning", () => beginning(state)),
  );
  clear(
    state.behind,
    !state.atEnd && button(`Show ${number(PART)} later entries`, () => later(state)),
    !state.atEnd && button("To the end", () => load(state)),
  );
}

/** @param {State} state */
function earlier(state) {
  const after = Math.max(0, state.first - 1 - PART);
  return read(state, after, state.first - 1 - after);
}

/** @param {State} state */
async function beginning(state) {
  empty(state);
  state.atEnd = false;
  await read(state, 0, PART);
  state.list.scrollTop = 0;
}

/** @param {State} state */
async function later(state) {
  const last = seqOf(state.list.lastElementChild);
  const answer = await get("run/history", { id: state.id, after: last, limit: PART });
  state.atEnd = answer.next === null;
  for (const entry of answer.entries) put(state, entry);
  count(state);
  around(state);
}

/** Show only the entries of one step, or all again.
 *  @param {State} state
 *  @param {string | null} step */
async function only(state, step) {
  state.step = step;
  state.loaded = true;
  state.filter.hidden = !step;
  const all = el("button", { type: "button", class: "quiet" }, "Show all entries");
  all.addEventListener("click", () => only(state, null).catch(failed));
  clear(state.filter, step ? [el("span", null, "Only ", el("code", null, step)), all] : null);
  if (!step) return load(state);
  empty(state);
  await read(state, 0, MOST);
}

/** Add an entry that was just written.
 *  @param {State} state
 *  @param {EntryData} entry */
function add(state, entry) {
  state.last = Math.max(state.last, entry.seq);
  if (!state.loaded || !state.atEnd || (state.step && entry.step !== state.step)) return;
  const wasSeen = isSeen(state.list.lastElementChild);
  const node = put(state, entry);
  node?.classList.add("arrived");
  while (state.following && state.list.children.length > SHOWN_MAX) {
    state.list.firstElementChild?.remove();
    state.first = seqOf(state.list.firstElementChild);
    around(state);
  }
  count(state);
  if (node && state.following) (wasSeen ? toEndOf : bottom)(state);
}

/** @param {State} state */
function bottom(state) {
  const last = state.list.lastElementChild;
  if (!last?.checkVisibility()) return;
  if (state.list.contains(document.activeElement)) return;
  const down = () => (state.list.scrollTop = state.list.scrollHeight);
  down();
  requestAnimationFrame(down); // Entries that are not drawn yet are higher than estimated.
}

/** Scroll to the last entry, and keep it visible while the page grows, until the reader scrolls.
 *  @param {State} state */
function toEndOf(state) {
  state.pinned = true;
  pin(state);
}

/** @param {State} state */
function pin(state) {
  const last = state.list.lastElementChild;
  if (!state.pinned || !last?.checkVisibility()) return;
  if (state.list.contains(document.activeElement)) return;
  bottom(state);
  last.scrollIntoView({ block: "nearest" });
}

/** @param {State} state */
function keepPinned(state) {
  const again = () => requestAnimationFrame(() => pin(state));
  new ResizeObserver(again).observe(document.body);
  state.list.addEventListener("contentvisibilityautostatechange", again);
  for (const kind of ["wheel", "touchmove", "keydown", "pointerdown"]) {
    addEventListener(kind, () => (state.pinned = false), { capture: true, passive: true });
  }
}

/** @param {Element | null} node */
function isSeen(node) {
  if (!node?.checkVisibility()) return false;
  const { top, bottom: end } = node.getBoundingClientRect();
  return top >= 0 && end <= innerHeight;
}

/** @param {State} state */
function count(state) {
  const numbers = [state.list.firstElementChild, state.list.lastElementChild].map((node) =>
    number(seqOf(node)),
  );
  const isEmpty = !state.list.firstElementChild;
  say(state.told, isEmpty ? "No entries" : `Entries ${numbers[0]} to ${numbers[1]}`);
}

/** Insert an entry at the position of its number, unless it is there already.
 *  @param {State} state
 *  @param {EntryData} entry
 *  @returns {HTMLElement | null} */
function put(state, entry) {
  const place = before(state, entry.seq);
  if (place && seqOf(place) === entry.seq) return null;
  const node = entryNode(state, entry);
  if (place) place.after(node);
  else state.list.prepend(node);
  state.near = node;
  state.first = Math.min(state.first, entry.seq);
  state.last = Math.max(state.last, entry.seq);
  return node;
}

/** The number of the entry of a node; 0 if there is none.
 *  @param {Element | null} node */
function seqOf(node) {
  return Number(node?.getAttribute("data-seq") ?? 0);
}

/** The node after which an entry belongs, or its own. The search begins at the last inserted entry,
 *  since entries arrive in order.
 *  @param {State} state
 *  @param {number} seq */
function before(state, seq) {
  let place = state.near?.isConnected ? state.near : state.list.lastElementChild;
  while (place && seqOf(place) > seq) place = place.previousElementSibling;
  if (!place) return null;
  while (place.nextElementSibling && seqOf(place.nextElementSibling) <= seq) {
    place = place.nextElementSibling;
  }
  return place;
}

// -- one entry ----------------------------------------------------------------------------------

/**
 * @param {State} state
 * @param {EntryData} entry
 */
function entryNode(state, entry) {
  const summary = el(
    "summary",
    null,
    el("span", { class: "entry-seq" }, String(entry.seq)),
    el("span", { class: "entry-time" }, time(entry.at, { exact: true })),
    el("span", { class: `entry-kind ${mood(entry.kind)}` }, words(entry.kind)),
    el(
      "span",
      { class: "entry-step mono" },
      entry.step ?? "",
      entry.attempt > 1 ? el("span", { class: "faint" }, ` attempt ${entry.attempt}`) : null,
    ),
    el("span", { class: "entry-hint" }, hint(entry.body ?? {})),
  );
  const box = el("details", null, summary);
  box.addEventListener("toggle", () => {
    if (!box.open || box.children.length > 1) return;
    box.append(bodyNode(state, entry, box));
    if (box.contains(document.activeElement)) box.scrollIntoView({ block: "nearest" });
  });
  return el("li", { "data-seq": entry.seq }, box);
}

/** @param {string} kind */
function mood(kind) {
  if (GOOD.has(kind)) return "is-good";
  if (BAD.has(kind)) return "is-bad";
  return WARN.has(kind) ? "is-warn" : "";
}

/** @param {Record<string, any>} body */
function hint(body) {
  if (body.error?.type) return `${body.error.type}: ${body.error.message ?? ""}`.slice(0, 140);
  for (const name of ["reason", "why", "detail", "actor", "text", "name", ...VALUES]) {
    if (!Object.hasOwn(body, name) || body[name] === null) continue;
    const value = body[name];
    return `${name}: ${isClipped(value) ? "…" : preview(value, 90, sourceOf(body, name))}`;
  }
  return "";
}

/**
 * @param {State} state
 * @param {EntryData} entry
 * @param {HTMLElement} box
 * @returns {HTMLElement}
 */
function bodyNode(state, entry, box) {
  const body = entry.body ?? {};
  const full = async () => {
    const answer = await get(
      "run/history",
      { id: state.id, after: entry.seq - 1, limit: 1, full: 1 },
    ).catch(failed);
    const whole = answer?.entries?.[0];
    if (whole) box.lastElementChild?.replaceWith(bodyNode(state, whole, box));
  };
  const isFact = (/** @type {string} */ name) => !VALUES.includes(name) && !(name === "error" && body.error?.type);
  const facts = part(body, isFact);
  const parts = VALUES.filter((name) => Object.hasOwn(body, name)).map((name) =>
    el(
      "div",
      { class: "entry-value" },
      el("h3", null, words(name)),
      fieldView(body, name, { label: `${words(name)} of entry ${entry.seq}`, full }),
    ),
  );
  const rest = Object.keys(facts).length ? valueView(
    facts,
    { label: `Facts of entry ${entry.seq}`, full, open: 2 },
  ) : null;
  const nothing = !parts.length && !rest && !body.error ? el(
    "p",
    { class: "faint" },
    "No further data.",
  ) : null;
  return el(
    "div",
    { class: "entry-body" },
    errorBox(body.error?.type ? body.error : null),
    parts,
    rest,
    nothing,
  );
}
