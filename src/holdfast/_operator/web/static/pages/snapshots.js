// Snapshots of loops: their list, the state of one, and the differences of any two.
// @ts-check

import { get } from "../lib/api.js";
import { clear, el, keep, time } from "../lib/dom.js";
import { bytes, number } from "../lib/format.js";
import { differencesView } from "../lib/differences.js";
import { failed } from "../lib/shell.js";
import { fieldView } from "../lib/values.js";

/** @import { SnapshotView } from "../lib/api-types.js" */
/** @typedef {{ field: HTMLSelectElement, node: HTMLElement }} Choice */
/** @typedef {object} State
 *  @property {string} id
 *  @property {SnapshotView[]} found
 *  @property {string} asked
 *  @property {Choice} left
 *  @property {Choice} right
 *  @property {HTMLElement} shown
 *  @property {HTMLElement} empty
 *  @property {HTMLInputElement} newest
 *  @property {HTMLElement} tools
 *  @property {(state: State) => Promise<void>} show */

const CHOICES_MAX = 2000;

/** Return `{node, load()}`; another load keeps the selection.
 *  @param {string} id */
export function snapshotsView(id) {
  const left = select("snapshot-from", "From");
  const right = select("snapshot-to", "To");
  const shown = el("div", { class: "snapshot-shown", "aria-live": "polite" });
  const empty = el(
    "p",
    { class: "empty", hidden: true },
    "No snapshots. A loop with ",
    el("code", null, "turns"),
    " saves one after each turn.",
  );
  const newest = el("input", { type: "checkbox", id: "snapshot-newest" });
  newest.checked = true;
  const compare = el("button", { type: "button", "aria-pressed": "true" }, "Differences");
  const single = el("button", { type: "button", "aria-pressed": "false" }, "State");
  const tools = el(
    "div",
    { class: "row snapshot-tools", hidden: true },
    el("span", { class: "segments", role: "group", "aria-label": "What to show" }, compare, single),
    left.node,
    right.node,
    el("label", { class: "check", for: "snapshot-newest" }, newest, "Keep to the newest"),
  );
  /** @type {State} */
  const state = { id, found: [], asked: "", left, right, shown, empty, newest, tools, show: showDifferences };
  const mode = (/** @type {State["show"]} */ show) => {
    compare.setAttribute("aria-pressed", String(show === showDifferences));
    single.setAttribute("aria-pressed", String(show === showState));
    left.node.hidden = show === showState;
    show(state).catch(failed);
  };
  single.addEventListener("click", () => mode(showState));
  compare.addEventListener("click", () => mode(showDifferences));
  left.field.addEventListener("change", () => changed(state).catch(failed));
  right.field.addEventListener("change", () => {
    newest.checked = right.field.value === String(state.found.at(-1)?.seq);
    changed(state).catch(failed);
  });
  return {
    node: el("div", { class: "stack-small" }, tools, shown, empty),
    load: () => load(state),
  };
}

/**
 * @param {string} id
 * @param {string} label
 */
function select(id, label) {
  const field = el("select", { id });
  return {
    field,
    node: el("div", { class: "snapshot-field" }, el("label", { for: id }, label), field),
  };
}

/** @param {State} state */
async function load(state) {
  const answer = await get("run/snapshots", { id: state.id });
  state.found = answer.snapshots ?? [];
  const some = state.found.length > 0;
  state.tools.hidden = !some;
  state.shown.hidden = !some;
  state.empty.hidden = some;
  if (!some) return;
  const shown = state.found.slice(-CHOICES_MAX);
  const before = [state.left.field.value, state.right.field.value];
  for (const { field } of [state.left, state.right]) keep(field, shown, (one) => one.seq, option);
  const newest = String(state.found[state.found.length - 1].seq);
  const follow = state.newest.checked || !before[1];
  state.right.field.value = follow ? newest : before[1];
  const second = String(state.found.at(-2)?.seq ?? newest);
  state.left.field.value = follow || !before[0] ? second : before[0];
  await changed(state);
}

/** @param {SnapshotView} one */
function option(one) {
  const more = (one.superseded ? ", superseded" : "") + (one.borrowed ? ", borrowed" : "");
  const told = `${one.path}, turn ${number(one.turn)} (entry ${one.seq}${more})`;
  return el("option", { value: one.seq }, told);
}

/** @param {State} state */
function changed(state) {
  return state.show(state);
}

/**
 * @param {State} state
 * @param {number | null} full
 */
async function showState(state, full = null) {
  state.show = showState;
  const seq = state.right.field.value;
  if (state.asked === `state ${seq}`) return;
  const saved = (await get("run/state", { id: state.id, seq, full })).state;
  const { at, turn, path } = saved;
  state.asked = `state ${seq}`;
  const size = state.found.find((one) => String(one.seq) === seq)?.bytes;
  const whole = () => {
    state.asked = "";
    showState(state, 1).catch(failed);
  };
  clear(
    state.shown,
    el(
      "p",
      { class: "faint" },
      `${path}, before turn ${number(turn)}, saved `,
      time(at),
      size ? `, ${bytes(size)} in the journal` : null,
    ),
    fieldView(saved, "state", { label: "State", full: whole }),
  );
}

/** @param {State} state */
async function showDifferences(state) {
  state.show = showDifferences;
  const [from, to] = [state.left.field.value, state.right.field.value];
  if (state.asked === `${from} ${to}`) return;
  if (from === to) return showOnly(state);
  const answer = await get("run/state-diff", { id: state.id, from, to });
  state.asked = `${from} ${to}`;
  clear(state.shown, differencesView(answer.differences, { cut: answer.cut }));
}

/** @param {State} state */
async function showOnly(state) {
  await showState(state);
  state.show = showDifferences;
}
