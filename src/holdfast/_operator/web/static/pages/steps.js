// The steps of a run as a table, newest last; rows keep their position while the run executes.
// @ts-check

import { get } from "../lib/api.js";
import { append, badge, clear, el, keep, say, time } from "../lib/dom.js";
import { clipped, length, number, words } from "../lib/format.js";
import { errorBox } from "./explanation.js";

/** @import { RunView, SettledView, Steps, StepView } from "../lib/api-types.js" */
/** @typedef {object} State
 *  @property {string} id
 *  @property {(key: string) => void} open
 *  @property {HTMLElement} rows
 *  @property {HTMLElement} more
 *  @property {Map<string, StepView> | null} all
 *  @property {StepView[]} latest
 *  @property {number} total
 *  @property {boolean} atEnd
 *  @property {boolean} follows */

const FINAL = new Set(["completed", "cancelled", "rolled_back"]);
const HEADS = [
  ["Step"],
  ["Status"],
  ["Attempts", "num"],
  ["Started"],
  ["Took", "num"],
  ["What went wrong"],
];

/** Return `{node, show(run, total)}`; `open(key)` shows the entries of a step.
 *  @param {string} id
 *  @param {(key: string) => void} open */
export function stepsView(id, open) {
  const rows = el("tbody", null);
  const more = el("div", { class: "pages" });
  const head = el(
    "thead",
    null,
    el("tr", null, HEADS.map(([name, kind]) => el("th", { scope: "col", class: kind }, name))),
  );
  const table = el(
    "table",
    { class: "cards steps" },
    el("caption", { class: "unseen" }, "Steps in the order of their first call"),
    head,
    rows,
  );
  const box = el(
    "div",
    { class: "table scrolls", tabindex: 0, role: "region", "aria-label": "Steps" },
    table,
  );
  const empty = el("p", { class: "empty" }, "No step has been called yet.");
  /** @type {State} */
  const state = { id, open, rows, more, all: null, latest: [], total: 0, atEnd: true, follows: true };
  box.addEventListener(
    "scroll",
    () => (state.atEnd = box.scrollTop + box.clientHeight >= box.scrollHeight - 8),
  );
  // While a run executes, keep the newest steps visible if they were.
  const end = () => state.atEnd && state.follows && (box.scrollTop = box.scrollHeight);
  return {
    node: el("div", { class: "stack-small" }, more, box, empty),
    /**
     * @param {RunView} run
     * @param {number} total
     */
    show(run, total) {
      state.latest = run.steps ?? [];
      state.total = total ?? state.latest.length;
      empty.hidden = state.latest.length > 0;
      box.hidden = !empty.hidden;
      draw(state);
      state.follows = !FINAL.has(run.status);
      end();
    },
    reveal: () => end(),
  };
}

/** @type {(step: StepView) => string} */
const idOf = (step) => `${step.generation}|${step.superseded ? 1 : 0}|${step.borrowed ? 1 : 0}|${step.key}`;

/** @param {State} state */
function draw(state) {
  for (const step of state.all ? state.latest : []) state.all?.set(idOf(step), step);
  const shown = state.all ? [...state.all.values()] : state.latest;
  keep(state.rows, shown, idOf, (step) => rowNode(state, step), updateRow);
  const left = state.total - shown.length;
  if (left > 0 && !state.more.firstChild) {
    const button = el("button", { type: "button" }, `Show all ${number(state.total)} steps`);
    button.addEventListener("click", () => readAll(state, button));
    append(
      state.more,
      el("span", { class: "faint" }, `The last ${number(shown.length)} steps.`),
      button,
    );
  } else if (left <= 0) clear(state.more);
}

/**
 * @param {State} state
 * @param {HTMLButtonElement} button
 */
async function readAll(state, button) {
  button.disabled = true;
  /** @type {number | null} */
  let after = 0;
  /** @type {StepView[]} */
  const found = [];
  while (after !== null) {
    /** @type {Steps} */
    const answer = await get("run/steps", { id: state.id, after, limit: 500 });
    found.push(...(answer.steps ?? []));
    after = answer.next;
  }
  state.all = new Map(found.map((step) => [idOf(step), step]));
  clear(state.more);
  draw(state);
}

/**
 * @param {State} state
 * @param {StepView} step
 */
function rowNode(state, step) {
  const name = el(
    "button",
    { type: "button", class: "quiet step-key", "aria-label": `Entries of ${step.key}` },
    step.key,
  );
  name.addEventListener("click", () => state.open(step.key));
  const marks = [];
  if (step.effect) marks.push(el(
    "span",
    { class: "mark is-effect", title: "Changes the outside world" },
    "effect",
  ));
  if (step.transaction) marks.push(el("span", { class: "mark" }, "in the store's database"));
  if (step.borrowed) marks.push(el("span", { class: "mark" }, "borrowed"));
  if (step.superseded) marks.push(el(
    "span",
    { class: "mark" },
    `superseded, generation ${step.generation}`,
  ));
  const cell = (/** @type {string} */ label, /** @type {string} */ kind) => el("td", { "data-label": label, class: kind });
  return el(
    "tr",
    { class: step.superseded ? "is-superseded" : null },
    el("th", { scope: "row", class: "card-title" }, name, " ", marks),
    cell("Status", "of-status"),
    cell("Attempts", "num"),
    cell("Started", "nowrap"),
    cell("Took", "num"),
    cell("What went wrong", "wrong"),
  );
}

/** The decision that settled a step: its actor and its delay.
 *  @param {SettledView} settled */
function settled({ outcome, by, after_s: after }) {
  const later = after !== null && after >= 1 ? ` (${length(after)} later)` : "";
  return `settled as ${words(outcome)} by ${by}${later}`;
}

/**
 * @param {HTMLElement} node
 * @param {StepView} step
 */
function updateRow(node, step) {
  const state = JSON.stringify(step);
  if (node.shown === state) return;
  node.shown = state;
  const [, status, attempts, started, took, wrong] = node.children;
  clear(status, badge(step.status));
  say(attempts, step.attempts ? number(step.attempts) : "–");
  attempts.classList.toggle("none", !step.attempts);
  clear(started, time(step.started_at));
  say(took, length(step.duration_s));
  const error = step.error && { ...step.error, message: clipped(step.error.message ?? "", 600) };
  clear(
    wrong,
    step.settled ? el("p", { class: "faint settled" }, settled(step.settled)) : null,
    errorBox(error),
    step.degraded ? [
      el("span", { class: "faint" }, "Its fallback was used: "),
      errorBox(step.degraded),
    ] : null,
  );
}
