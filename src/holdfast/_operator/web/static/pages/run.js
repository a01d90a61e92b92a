// The page of one run: explanation, head, timeline, and tabs for steps, journal, values, snapshots.
//
// While the run executes, a stream reports new entries. Then the page reads the changed parts again
// and updates them node by node, so that focus and scroll position stay and nothing flickers.
// @ts-check

import { actionBar } from "../dialogs/actions.js";
import { get, stream } from "../lib/api.js";
import { append, badge, byId, clear, el, inside, set, time } from "../lib/dom.js";
import { words } from "../lib/format.js";
import { cannotShow, errorBox, explanationView } from "./explanation.js";
import { headView } from "./run-head.js";
import { journalView } from "./journal.js";
import { part, written } from "../lib/numbers.js";
import { announce, failed, onChange, reading, ready, shortcut } from "../lib/shell.js";
import { snapshotsView } from "./snapshots.js";
import { stepsView } from "./steps.js";
import { timelineView } from "./timeline.js";
import { fieldView } from "../lib/values.js";

/** @import { EntryData, Run, RunView, TimelineTold } from "../lib/api-types.js" */
/** @import { Child } from "../lib/globals.js" */
/** The state of the page; its parts exist from the first answer on.
 *  @typedef {object} View
 *  @property {string} tab
 *  @property {Run | null} answer
 *  @property {(() => void) | null} tail
 *  @property {number | undefined} last
 *  @property {number} refreshedMs
 *  @property {number} lookedMs
 *  @property {number} timer
 *  @property {boolean} busy
 *  @property {boolean} again
 *  @property {ReturnType<typeof explanationView>} explanation
 *  @property {ReturnType<typeof headView>} head
 *  @property {ReturnType<typeof timelineView>} timeline
 *  @property {ReturnType<typeof stepsView>} steps
 *  @property {ReturnType<typeof journalView>} journal
 *  @property {ReturnType<typeof snapshotsView>} snapshots
 *  @property {ReturnType<typeof actionBar>} actions
 *  @property {HTMLElement} values
 *  @property {HTMLElement} messages
 *  @property {Record<string, HTMLElement>} buttons
 *  @property {Record<string, HTMLElement>} panels
 *  @property {boolean} journalRead
 *  @property {string} valuesShown
 *  @property {string} messagesShown */
/** @typedef {"steps" | "journal" | "values" | "snapshots" | "messages"} Tab */

const REFRESH_MS = 400;
const OVER_MS = 3000;
const STILL_MS = 5000;
const FINAL = new Set(["completed", "cancelled", "rolled_back"]);
/** @type {Record<Tab, string>} */
const TABS = {
  steps: "Steps",
  journal: "Journal",
  values: "Input and result",
  snapshots: "Snapshots",
  messages: "Messages",
};

const id = new URLSearchParams(location.search).get("id") ?? "";
const page = byId("run");
const view = /** @type {View} */ ({
  tab: "",
  answer: null,
  tail: null,
  refreshedMs: 0,
  lookedMs: 0,
  timer: 0,
  busy: false,
  again: false,
});

// -- the parts ------------------------------------------------------------------------------------

/** @param {Run} answer */
function build(answer) {
  view.explanation = explanationView(refreshSoon);
  view.head = headView(id);
  view.timeline = timelineView((bar) => openStep(bar.key));
  view.timeline.node.hidden = true; // Until it is loaded.
  view.steps = stepsView(id, openStep);
  view.journal = journalView(id);
  view.values = el("div", { class: "stack-small" });
  view.snapshots = snapshotsView(id);
  view.messages = el("div", { class: "stack-small" });
  view.actions = actionBar(answer.run, answer.etag, { changed: refresh });
  view.head.bar.append(view.actions);
  clear(page, view.head.node, view.explanation.node, view.timeline.node, tabs());
  document.title = document.title.replace(
    /Run · Holdfast$/,
    `${inside(view.head.node, "h1").textContent} · Holdfast`,
  );
}

function tabs() {
  view.buttons = {};
  view.panels = {};
  const content = {
    steps: view.steps.node,
    journal: view.journal.node,
    values: view.values,
    snapshots: view.snapshots.node,
    messages: view.messages,
  };
  const list = el("div", { class: "tabs", role: "tablist", "aria-label": "Parts of the run" });
  const box = el("section", { "aria-label": "Parts of the run" }, list);
  for (const [name, label] of /** @type {[Tab, string][]} */ (Object.entries(TABS))) {
    const button = el(
      "button",
      {
        type: "button",
        role: "tab",
        id: `tab-${name}`,
        "aria-controls": `panel-${name}`,
        tabindex: -1,
      },
      label,
    );
    button.addEventListener("click", () => choose(name));
    const panel = el(
      "div",
      {
        role: "tabpanel",
        id: `panel-${name}`,
        "aria-labelledby": `tab-${name}`,
        class: "panel",
        hidden: true,
      },
      content[name],
    );
    view.buttons[name] = button;
    view.panels[name] = panel;
    list.append(button);
    box.append(panel);
  }
  list.addEventListener("keydown", (event) => {
    if (event.key !== "ArrowRight" && event.key !== "ArrowLeft") return;
    event.preventDefault();
    turn(event.key === "ArrowRight" ? 1 : -1);
  });
  return box;
}

/** Go to the next or the previous tab.
 *  @param {number} by */
function turn(by) {
  const names = Object.keys(TABS).filter((name) => !view.buttons[name].hidden);
  const next = names[(names.indexOf(view.tab) + by + names.length) % names.length];
  choose(next);
  view.buttons[next].focus();
}

/** @param {string} name */
function choose(name) {
  const isThere = Object.hasOwn(TABS, name) && !view.buttons[name].hidden;
  const chosen = isThere ? name : "steps";
  view.tab = chosen;
  for (const one of Object.keys(TABS)) {
    set(view.buttons[one], "aria-selected", String(one === chosen));
    set(view.buttons[one], "tabindex", one === chosen ? 0 : -1);
    view.panels[one].hidden = one !== chosen;
  }
  history.replaceState(history.state, "", `${location.pathname}${location.search}#${chosen}`);
  fillTab().catch(failed);
}

/** Show the tab of the changed address. */
function hashChanged() {
  const name = location.hash.slice(1);
  if (Object.hasOwn(TABS, name) && name !== view.tab) choose(name);
}

async function fillTab() {
  if (view.tab === "steps") view.steps.reveal();
  if (view.tab === "snapshots") await reading(view.snapshots.node, "The snapshots", view.snapshots.load);
  if (view.tab === "journal" && !view.journalRead) await reading(view.journal.node, "The journal", readJournal);
}

async function readJournal() {
  view.journalRead = true;
  try {
    await view.journal.load(!isFinal());
  } catch (error) {
    view.journalRead = false;
    throw error;
  }
}

/** @param {string} key */
async function openStep(key) {
  view.journalRead = true;
  choose("journal");
  await view.journal.only(key).catch(failed);
  view.panels.journal.scrollIntoView({ block: "nearest" });
}

// -- input, result and messages -------------------------------------------------------------------

/** @param {Run} answer */
function showValues({ run }) {
  const state = written(part(run, (name) => ["input", "result", "error", "status"].includes(name)));
  if (view.valuesShown === state) return;
  view.valuesShown = state;
  const section = (/** @type {string} */ title, /** @type {Child[]} */ ...content) => el(
    "section",
    { class: "sheet" },
    el("h2", null, title),
    content,
  );
  const result = run.error
    ? section("Error", errorBox(run.error))
    : section(
      "Result",
      run.status === "completed" ? fieldView(
        run,
        "result",
        { label: "Result", full: fullResult },
      ) : el("p", { class: "faint" }, "There is none yet."),
    );
  clear(
    view.values,
    section("Input", fieldView(run, "input", { label: "Input", full: fullInput })),
    result,
  );
}

async function fullInput() {
  const answer = await get("run", { id, full: true }).catch(failed);
  replaceValue(0, "Input", answer?.run, "input");
}

async function fullResult() {
  const answer = await get("run", { id, full: true }).catch(failed);
  replaceValue(1, "Result", answer?.run, "result");
}

/**
 * @param {number} at
 * @param {string} label
 * @param {RunView | undefined} run
 * @param {string} name
 */
function replaceValue(at, label, run, name) {
  if (run === undefined) return;
  view.values.children[at].lastElementChild?.replaceWith(fieldView(run, name, { label }));
}

/** @param {Run} answer */
function showMessages({ run }) {
  const signals = run.signals ?? [];
  view.buttons.messages.hidden = signals.length === 0;
  const state = written(signals);
  if (view.messagesShown === state) return;
  view.messagesShown = state;
  const heads = [
    "Name",
    "Kind",
    "Status",
    "By",
    "When",
    "Value",
  ].map((name) => el("th", { scope: "col" }, name));
  const cell = (/** @type {string} */ label, /** @type {Child[]} */ ...content) => el("td", { "data-label": label }, content);
  const rows = signals.map((one) =>
    el(
      "tr",
      null,
      el("th", { scope: "row", class: "card-title mono" }, one.name),
      cell("Kind", words(one.kind)),
      cell("Status", badge(one.status), one.why ? ` ${one.why}` : null),
      cell("By", one.actor),
      cell("When", time(one.sent_at)),
      cell("Value", fieldView(one, "value", { label: `Value of ${one.name}`, open: 1 })),
    ),
  );
  clear(
    view.messages,
    el(
      "div",
      { class: "table" },
      el(
        "table",
        { class: "cards" },
        el("thead", null, el("tr", null, heads)),
        el("tbody", null, rows),
      ),
    ),
  );
}

// -- live -----------------------------------------------------------------------------------------

async function refresh() {
  clearTimeout(view.timer);
  view.timer = 0;
  if (view.busy) {
    view.again = true;
    return;
  }
  view.busy = true;
  try {
    do {
      view.again = false;
      await look();
      await reading(view.head.node, "The run", async () => {});
    } while (view.again);
  } catch (error) {
    if (!view.answer) clear(page, cannotShow(id, error));
    else await reading(view.head.node, "The run", () => Promise.reject(error));
  } finally {
    view.busy = false;
    view.refreshedMs = Date.now();
  }
}

async function look() {
  const [answer, [timeline]] = await Promise.all([
    get("run", { id }),
    Promise.allSettled([get("run/timeline", { id })]),
  ]);
  const before = view.answer?.run.status;
  if (!view.answer) build(answer);
  view.answer = answer;
  each(
    () => view.explanation.show(answer),
    () => view.head.show(answer),
    () => view.actions.update(answer.run, answer.etag),
    () => reading(view.timeline.node, "The timeline", () => showTimeline(timeline)),
    () => view.steps.show(answer.run, answer.steps_total),
    () => view.journal.ended(FINAL.has(answer.run.status)),
    () => showValues(answer),
    () => showMessages(answer),
  );
  if (!view.tab) {
    choose(location.hash.slice(1));
    addEventListener("hashchange", hashChanged);
  }
  else fillTab();
  if (before && before !== answer.run.status) announce(`The run is ${words(answer.run.status)}`);
  reading(view.explanation.node, "New entries", follow);
}

/** @param {PromiseSettledResult<TimelineTold>} answer */
async function showTimeline(answer) {
  if (answer.status === "rejected") throw answer.reason;
  view.timeline.node.hidden = false;
  view.timeline.show(answer.value.timeline);
}

/** Show each part; an error in one does not affect the others.
 *  @param {...() => any} parts */
function each(...parts) {
  for (const part of parts) {
    try {
      part();
    } catch (error) {
      failed(error);
    }
  }
}

function refreshSoon() {
  if (view.timer) return;
  view.timer = setTimeout(refresh, Math.max(60, view.refreshedMs + REFRESH_MS - Date.now()));
}

/** Whether the run has ended for good. */
function isFinal() {
  return view.answer !== null && FINAL.has(view.answer.run.status);
}

/** Follow the stream of entries; reload an ended run when the store changes. */
async function follow() {
  if (view.tail || isFinal()) return;
  const last = view.last ?? (await get("run/history", { id, limit: 1 })).last;
  view.last = last;
  if (view.tail) return;
  if (isFinal()) return unfollow();
  view.tail = stream("run/history/stream", { id, after: Math.max(last, view.journal.last) }, {
    entry: (/** @type {EntryData} */ entry) => {
      view.last = entry.seq;
      view.journal.add(entry);
      refreshSoon();
    },
    run: refreshSoon,
    trouble: refreshSoon,
    end: () => {
      unfollow();
      refreshSoon();
    },
  });
}

function unfollow() {
  view.tail?.();
  view.tail = null;
}

/** Check an ended run for new entries: it may have been rolled back or resumed. */
async function lookAgain() {
  if (!isFinal() || Date.now() < view.lookedMs + OVER_MS) return;
  view.lookedMs = Date.now();
  const { last } = await get("run/history", { id, limit: 1 });
  if (view.last !== undefined && last !== view.last) refreshSoon();
  view.last = last;
}

shortcut("]", "Next part of the run", () => view.buttons && turn(1));
shortcut("[", "Previous part of the run", () => view.buttons && turn(-1));
onChange(() => (view.answer ? reading(view.head.node, "The run", lookAgain) : id && refresh()));
// Some changes have no entry: a dead process, an approaching deadline, a message.
setInterval(
  () => view.answer && !isFinal() && !document.hidden && refreshSoon(),
  STILL_MS,
);
ready.then(refresh, () => {});
if (!id) {
  clear(page);
  append(page, cannotShow("", { type: "RunNotFound", message: "The address contains no run id." }));
}
