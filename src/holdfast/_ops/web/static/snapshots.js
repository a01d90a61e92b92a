// Snapshots of loops: which there are, the state of one, and what changed between any two.

import { get } from "/static/api.js";
import { bytes, clear, el, keep, number, time } from "/static/dom.js";
import { differencesView } from "/static/differences.js";
import { failed } from "/static/shell.js";
import { valueView } from "/static/values.js";

const CHOICES_MAX = 2000;

/** Return `{node, load()}`; loading again keeps what is chosen. */
export function snapshotsView(id) {
  const state = { id, found: [], from: null, to: null, asked: "" };
  state.left = select("snapshot-from", "From");
  state.right = select("snapshot-to", "To");
  state.shown = el("div", { class: "snapshot-shown", "aria-live": "polite" });
  state.empty = el("p", { class: "empty" }, "No snapshots. A loop with ", el("code", null, "turns"), " saves one after each turn.");
  state.newest = el("input", { type: "checkbox", id: "snapshot-newest" });
  state.newest.checked = true;
  const single = el("button", { type: "button" }, "Show its state");
  const compare = el("button", { type: "button" }, "Show differences");
  single.addEventListener("click", () => showState(state).catch(failed));
  compare.addEventListener("click", () => showDifferences(state).catch(failed));
  state.left.field.addEventListener("change", () => changed(state));
  state.right.field.addEventListener("change", () => {
    state.newest.checked = state.right.field.value === String(state.found.at(-1)?.seq);
    changed(state);
  });
  state.tools = el("div", { class: "row snapshot-tools" }, state.left.node, state.right.node, compare, single, el("label", { class: "check", for: "snapshot-newest" }, state.newest, "Keep to the newest"));
  state.show = showDifferences;
  return { node: el("div", { class: "stack-small" }, state.tools, state.shown, state.empty), load: () => load(state) };
}

function select(id, label) {
  const field = el("select", { id });
  return { field, node: el("div", { class: "snapshot-field" }, el("label", { for: id }, label), field) };
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
  const told = `${one.path} turn ${number(one.turn)} · entry ${one.seq}${one.superseded ? " · superseded" : ""}${one.borrowed ? " · borrowed" : ""}`;
  return el("option", { value: one.seq }, told);
}

function changed(state) {
  return state.show(state).catch(failed);
}

async function showState(state) {
  state.show = showState;
  const seq = state.right.field.value;
  if (state.asked === `state ${seq}`) return;
  const { state: value, at, turn, path } = unwrapped(await get("run/state", { id: state.id, seq }));
  state.asked = `state ${seq}`;
  const size = state.found.find((one) => String(one.seq) === seq)?.bytes;
  clear(state.shown, el("p", { class: "faint" }, `${path}, before turn ${number(turn)}, saved `, time(at), size ? `, ${bytes(size)} in the journal` : null), valueView(value, { label: "State" }));
}

const unwrapped = (answer) => (answer.state && "seq" in answer.state ? answer.state : answer);

async function showDifferences(state) {
  state.show = showDifferences;
  const [from, to] = [state.left.field.value, state.right.field.value];
  if (state.asked === `${from} ${to}`) return;
  if (from === to) return showOnly(state);
  const answer = await get("run/differences", { id: state.id, from, to });
  state.asked = `${from} ${to}`;
  clear(state.shown, differencesView(answer.differences ?? [], { cut: answer.cut }));
}

async function showOnly(state) {
  await showState(state);
  state.show = showDifferences;
}
