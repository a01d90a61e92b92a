// The journal: entries in order, each of which opens; new ones appear at the end while it is followed.

import { get } from "/static/api.js";
import { append, clear, el, number, say, time, words } from "/static/dom.js";
import { errorBox } from "/static/explanation.js";
import { failed } from "/static/shell.js";
import { isClipped, preview } from "/static/tree.js";
import { valueView } from "/static/values.js";

const PART = 200;
const MOST = 500;
const SHOWN_MAX = 2000;
const GOOD = new Set(["step_completed", "run_completed", "step_settled"]);
const BAD = new Set(["step_failed", "run_failed", "message_refused"]);
const WARN = new Set([
  "step_in_doubt",
  "run_held",
  "finding_noted",
  "gap_found",
  "cancel_requested",
  "wait_timed_out",
]);
const VALUES = ["input", "args", "result", "value", "state"];

/** Return the journal of a run. `load()` reads its end, `add(entry)` takes a new one. */
export function journalView(id) {
  const state = { id, first: Infinity, last: 0, following: true, step: null, loaded: false };
  state.list = el("ol", { class: "journal", "aria-label": "Entries, oldest first" });
  state.before = el("div", { class: "pages" });
  state.filter = el("span", { class: "row", hidden: true });
  state.told = el("span", { class: "faint", role: "status" });
  const follow = el("input", { type: "checkbox", id: "follow" });
  follow.checked = true;
  follow.addEventListener("change", () => {
    state.following = follow.checked;
    if (follow.checked) bottom(state);
  });
  const head = el(
    "div",
    { class: "spread" },
    el("div", { class: "row" }, state.told, state.filter),
    el("label", { class: "check", for: "follow" }, follow, "Follow new entries"),
  );
  return {
    node: el("div", { class: "stack-small" }, head, state.before, state.list),
    load: () => load(state),
    add: (entry) => add(state, entry),
    only: (step) => only(state, step),
    get last() {
      return state.last;
    },
  };
}

// -- reading ------------------------------------------------------------------------------------

async function load(state) {
  state.loaded = true;
  const start = await get("run/entries", { id: state.id, limit: 1 });
  // What is written from now on comes with the tail.
  await read(state, Math.max(0, start.last - PART), PART);
  earlier(state);
}

async function read(state, after, limit) {
  const answer = await get("run/entries", { id: state.id, after, limit, step: state.step });
  for (const entry of answer.entries ?? []) put(state, entry);
  count(state);
  return answer;
}

function earlier(state) {
  clear(state.before);
  if (state.first <= 1 || state.step) return;
  const button = el(
    "button",
    { type: "button" },
    `Show ${number(Math.min(PART, state.first - 1))} earlier entries`,
  );
  const start = el("button", { type: "button", class: "quiet" }, "From the beginning");
  button.addEventListener("click", () => older(state, Math.max(0, state.first - 1 - PART)));
  start.addEventListener("click", () => older(state, 0));
  append(state.before, button, state.first > PART + 1 ? start : null);
}

async function older(state, after) {
  const until = state.first;
  try {
    let next = after;
    while (next !== null && next !== undefined && next < until - 1) {
      const answer = await read(state, next, Math.min(MOST, until - 1 - next));
      next = answer.next;
    }
    earlier(state);
  } catch (error) {
    failed(error);
  }
}

/** Show only the entries of one step, or all again. */
async function only(state, step) {
  state.step = step;
  state.first = Infinity;
  state.list.replaceChildren();
  state.filter.hidden = !step;
  const all = el("button", { type: "button", class: "quiet" }, "Show all entries");
  all.addEventListener("click", () => only(state, null).catch(failed));
  clear(state.filter, step ? [el("span", null, "Only ", el("code", null, step)), all] : null);
  if (step) await read(state, 0, MOST);
  else await load(state);
  earlier(state);
}

/** Take an entry that has just been written. */
function add(state, entry) {
  state.last = Math.max(state.last, entry.seq);
  if (!state.loaded || (state.step && entry.step !== state.step)) return;
  const node = put(state, entry);
  node?.classList.add("arrived");
  while (state.following && state.list.children.length > SHOWN_MAX) {
    state.list.firstElementChild.remove();
    state.first = Number(state.list.firstElementChild.dataset.seq);
  }
  count(state);
  if (node && state.following) bottom(state);
}

function bottom(state) {
  const last = state.list.lastElementChild;
  if (!last?.checkVisibility()) return;
  if (state.list.contains(document.activeElement)) return;
  state.list.scrollTop = state.list.scrollHeight;
}

function count(state) {
  const numbers = [state.list.firstElementChild, state.list.lastElementChild].map((node) =>
    number(Number(node?.dataset.seq ?? 0)),
  );
  const isEmpty = !state.list.firstElementChild;
  say(state.told, isEmpty ? "No entries" : `Entries ${numbers[0]} to ${numbers[1]}`);
}

/** Put an entry where its number says; one that is there already stays. */
function put(state, entry) {
  let place = state.list.lastElementChild;
  while (place && Number(place.dataset.seq) > entry.seq) place = place.previousElementSibling;
  if (place && Number(place.dataset.seq) === entry.seq) return null;
  const node = entryNode(state, entry);
  if (place) place.after(node);
  else state.list.prepend(node);
  state.first = Math.min(state.first, entry.seq);
  state.last = Math.max(state.last, entry.seq);
  return node;
}

// -- one entry ----------------------------------------------------------------------------------

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
  box.addEventListener(
    "toggle",
    () => box.open && box.children.length === 1 && box.append(bodyNode(state, entry, box)),
  );
  return el("li", { "data-seq": entry.seq }, box);
}

function mood(kind) {
  if (GOOD.has(kind)) return "is-good";
  if (BAD.has(kind)) return "is-bad";
  return WARN.has(kind) ? "is-warn" : "";
}

function hint(body) {
  if (body.error?.type) return `${body.error.type}: ${body.error.message ?? ""}`.slice(0, 140);
  for (const name of ["reason", "why", "detail", "actor", "text", "name", ...VALUES]) {
    const value = body[name];
    if (value === undefined || value === null) continue;
    return `${name}: ${isClipped(value) ? "…" : preview(value, 90)}`;
  }
  return "";
}

function bodyNode(state, entry, box) {
  const body = entry.body ?? {};
  const full = async () => {
    const answer = await get(
      "run/entries",
      { id: state.id, after: entry.seq - 1, limit: 1, full: 1 },
    ).catch(failed);
    const whole = answer?.entries?.[0];
    if (whole) box.lastElementChild.replaceWith(bodyNode(state, whole, box));
  };
  const isFact = ([name, value]) => !VALUES.includes(name) && !(name === "error" && value?.type);
  const facts = Object.fromEntries(Object.entries(body).filter(isFact));
  const parts = VALUES.filter((name) => name in body).map((name) =>
    el(
      "div",
      { class: "entry-value" },
      el("h3", null, words(name)),
      valueView(body[name], { label: `${words(name)} of entry ${entry.seq}`, full }),
    ),
  );
  const rest = Object.keys(facts).length ? valueView(
    facts,
    { label: `Facts of entry ${entry.seq}`, full, open: 2 },
  ) : null;
  const nothing = !parts.length && !rest && !body.error ? el(
    "p",
    { class: "faint" },
    "It says nothing more.",
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
