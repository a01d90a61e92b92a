// Snapshots of loops: which there are, the state of one, and what changed between any two.

import { get } from "/static/api.js";
import { bytes, clear, el, keep, number, time } from "/static/dom.js";
import { differencesView } from "/static/differences.js";
import { failed } from "/static/shell.js";
import { fieldView } from "/static/values.js";

const CHOICES_MAX = 2000;

/** Return `{node, load()}`; loading again keeps what is chosen. */
export function snapshotsView(id) {
  const state = { id, found: [], from: null, to: null, asked: "" };
  state.left = select("snapshot-from", "From");
  state.right = select("snapshot-to", "To");
  state.shown = el("div", { class: "snapshot-shown", "aria-live": "polite" });
  state.empty = el(
    "p",
    { class: "empty", hidden: true },
    "No snapshots. A loop with ",
    el("code", null, "turns"),
    " saves one after each turn.",
  );
  state.newest = el("input", { type: "checkbox", id: "snapshot-newest" });
  state.newest.checked = true;
  const compare = el("button", { type: "button", "aria-pressed": "true" }, "Differences");
  const single = el("button", { type: "button", "aria-pressed": "false" }, "State");
  const mode = (show) => {
    compare.setAttribute("aria-pressed", String(show === showDifferences));
    single.setAttribute("aria-pressed", String(show === showState));
    state.left.node.hidden = show === showState;
    show(state).catch(failed);
  };
  single.addEventListener("click", () => mode(showState));
  compare.addEventListener("click", () => mode(showDifferences));
  state.left.field.addEventListener("change", () => changed(state).catch(failed));
  state.right.field.addEventListener("change", () => {
    state.newest.checked = state.right.field.value === String(state.found.at(-1)?.seq);
    changed(state).catch(failed);
  });
  state.tools = el(
    "div",
    { class: "row snapshot-tools", hidden: true },
    el("span", { class: "segments", role: "group", "aria-label": "What to show" }, compare, single),
    state.left.node,
    state.right.node,
    el("label", { class: "check", for: "snapshot-newest" }, state.newest, "Keep to the newest"),
  );
  state.show = showDifferences;
  return {
    node: el("div", { class: "stack-small" }, state.tools, state.shown, state.empty),
    load: () => load(state),
  };
}

function select(id, label) {
  const field = el("select", { id });
  return {
    field,
    node: el("div", { class: "snapshot-field" }, el("label", { for: id }, label), field),
  };
}

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
  const newest = state.found.at(-1).seq;
  const follow = state.newest.checked || !before[1];
  state.right.field.value = follow ? newest : before[1];
  const second = state.found.at(-2)?.seq ?? newest;
  state.left.field.value = follow || !before[0] ? second : before[0];
  await changed(state);
}

function option(one) {
  const more = (one.superseded ? ", superseded" : "") + (one.borrowed ? ", borrowed" : "");
  const told = `${one.path}, turn ${number(one.turn)} (entry ${one.seq}${more})`;
  return el("option", { value: one.seq }, told);
}

function changed(state) {
  return state.show(state);
}

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

async function showDifferences(state) {
  state.show = showDifferences;
  const [from, to] = [state.left.field.value, state.right.field.value];
  if (state.asked === `${from} ${to}`) return;
  if (from === to) return showOnly(state);
  const answer = await get("run/differences", { id: state.id, from, to });
  state.asked = `${from} ${to}`;
  clear(state.shown, differencesView(answer.differences, { cut: answer.cut }));
}

async function showOnly(state) {
  await showState(state);
  state.show = showDifferences;
}
