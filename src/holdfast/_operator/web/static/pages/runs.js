// The list of runs: runs that need a person on top, filters in the address, live status.
// @ts-check

import { get } from "../lib/api.js";
import { ago, append, badge, byId, clear, commandLine, el, keep, runLink, runUrl, say, time } from "../lib/dom.js";
import { count, money, number } from "../lib/format.js";
import { asked, chips, fill, filters, go, isFiltered } from "./filters.js";
import { needs } from "./needs.js";
import { announce, onChange, reading, ready, shortcut } from "../lib/shell.js";

/** @import { RunSummary } from "../lib/api-types.js" */
/** @import { Wanted } from "./filters.js" */

const SETTLED_MS = 1600;
const page = byId("runs");
const parts = {
  rows: el("tbody", null),
  table: el("div", { class: "table", hidden: true }),
  needs: el("div", null),
  empty: el("div", null),
  exactly: el("div", null),
  pages: el("nav", { class: "pages", "aria-label": "Pages of the list" }),
};
/** @type {Set<string> | null} */
let shownIds = null;

// -- the table ---------------------------------------------------------------------------------------

function table() {
  const heads = [
    ["Run"],
    ["Status"],
    ["Flow"],
    ["Where"],
    ["Steps", "num"],
    ["Tokens", "num"],
    ["Cost", "num"],
    ["Changed"],
    ["Started"],
  ];
  const head = el("tr", null, heads.map(([text, kind]) => el("th", { scope: "col", class: kind }, text)));
  return append(
    parts.table,
    el(
      "table",
      { class: "cards runs" },
      el("caption", { class: "unseen" }, "Runs, newest first"),
      el("thead", null, head),
      parts.rows,
    ),
  );
}

/** @type {(usage: Record<string, any>) => number} */
const tokens = (usage) => (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);

/** @param {RunSummary} run */
function rowNode(run) {
  const cell = (/** @type {string} */ label, /** @type {string} */ kind) => el("td", { "data-label": label, class: kind });
  const first = el("th", { scope: "row", class: "card-title" }, runLink(run.run_id));
  const tags = Object.entries(run.tags ?? {}).map(([name, value]) => el(
    "span",
    { class: "tag" },
    `${name}=${value}`,
  ));
  if (tags.length) first.append(el("div", { class: "tags" }, tags));
  return el(
    "tr",
    { class: "choosable" },
    first,
    cell("Status", "of-status"),
    cell("Flow", "of-flow"),
    cell("Where", "where"),
    cell("Steps", "num"),
    cell("Tokens", "num"),
    cell("Cost", "num"),
    cell("Changed", "nowrap changed"),
    cell("Started", "nowrap started"),
  );
}

/**
 * @param {HTMLElement} node
 * @param {RunSummary} run
 */
function updateRow(node, run) {
  const state = JSON.stringify(run);
  if (node.shown === state) return;
  node.shown = state;
  const [, status, flow, where, steps, used, cost, changed, started] = node.children;
  const { usage = {}, steps: done = 0 } = run.totals ?? {};
  clear(status, badge(run.status, run.abandoned ? "abandoned" : run.held_reason));
  clear(
    flow,
    el("span", { class: "mono" }, run.flow),
    run.version && run.version !== "1" ? el("span", { class: "faint" }, ` v${run.version}`) : null,
  );
  clear(where, whereabouts(run));
  say(steps, number(done));
  say(used, tokens(usage) ? number(tokens(usage)) : "–");
  used.classList.toggle("none", !tokens(usage));
  say(cost, usage.cost ? money(usage.cost) : "–");
  cost.classList.toggle("none", !usage.cost);
  clear(changed, ago(run.updated_at));
  clear(started, time(run.created_at));
}

/** @param {RunSummary} run */
function whereabouts(run) {
  if (run.waiting_for && run.status === "waiting") return run.waiting_for;
  if (!run.current_step || ["completed", "cancelled", "rolled_back"].includes(run.status)) return "";
  const { running } = run;
  if (running) return [
    el("span", { class: "mono" }, running.key),
    running.attempt > 1 ? `, attempt ${number(running.attempt)}` : "",
    ", since ",
    ago(running.since),
  ];
  return el("span", { class: "mono" }, run.current_step);
}

// -- loading -----------------------------------------------------------------------------------------

let loading = false;
let again = false;

/** Start with new filters: runs of the previous list must not be marked as new. */
function begin() {
  shownIds = null;
  load();
}

async function load() {
  if (loading) {
    again = true;
    return;
  }
  loading = true;
  do {
    again = false;
    await reading(parts.table, "The list of runs", () => show().catch(troubled));
  } while (again);
  loading = false;
}

const UNKNOWN = { queued: "?", running: "?", failed: "?", held: "?" };

/** Map the server's counts by queue state (ready, delayed, running, failed, held) to statuses.
 *  @param {Record<string, number>} counts */
function counted({ ready, running, abandoned, failed: broken, held }) {
  return { queued: ready, running: running + abandoned, failed: broken, held };
}

async function show() {
  const wanted = asked();
  const [answer] = await Promise.all([get("runs", { ...wanted, limit: 50 }), showNeeds(wanted)]);
  if (JSON.stringify(wanted) !== JSON.stringify(asked())) return;
  const runs = answer.runs ?? [];
  parts.table.hidden = runs.length === 0;
  keep(parts.rows, runs, (run) => run.run_id, rowNode, updateRow);
  mark(runs);
  chips(answer.counts ? counted(answer.counts) : UNKNOWN);
  pages(wanted, answer.next, runs.length);
  if (parts.exactly.shown !== wanted.search) clear(parts.exactly, exactly(wanted));
  parts.exactly.shown = wanted.search;
  const none = runs.length ? "" : isFiltered(wanted) || wanted.before ? "like that" : "yet";
  if (parts.empty.shown === none) return;
  parts.empty.shown = none;
  clear(parts.empty, none === "" ? null : none === "yet" ? nothingYet() : nothingLikeThat());
}

/** @param {any} error */
function troubled(error) {
  if (error.status !== 400) throw error;
  parts.table.hidden = true;
  parts.empty.shown = "trouble";
  clear(
    parts.empty,
    el(
      "div",
      { class: "empty" },
      el("h2", null, "These filters do not work"),
      el("p", null, error.message),
    ),
  );
}

/** @param {RunSummary[]} runs */
function mark(runs) {
  const ids = new Set(runs.map((run) => run.run_id));
  if (shownIds) {
    for (const id of ids) if (!shownIds.has(id)) parts.rows.kept?.get(id)?.classList.add("arrived");
  } else announce(count(runs.length, "run") + " shown");
  shownIds = ids;
}

/** @param {Wanted} wanted */
async function showNeeds(wanted) {
  const there = isFiltered(wanted) || wanted.before ? null : await needs();
  if (there && parts.needs.firstElementChild?.getAttribute("data-state") === there.dataset.state) return;
  if (parts.needs.contains(document.activeElement) && there) return;
  clear(parts.needs, there);
}

/**
 * @param {Wanted} wanted
 * @param {string | null} next
 * @param {number} shown
 */
function pages(wanted, next, shown) {
  const first = el("button", { type: "button", hidden: !wanted.before }, "Newest");
  first.addEventListener("click", () => go({ ...wanted, before: null }));
  const older = el("button", { type: "button", class: "older", hidden: !next }, "Older");
  older.addEventListener("click", () => {
    go({ ...wanted, before: next });
    scrollTo(0, 0);
  });
  const state = JSON.stringify([wanted, next, shown]);
  if (parts.pages.shown === state) return;
  parts.pages.shown = state;
  clear(
    parts.pages,
    el(
      "span",
      { class: "faint" },
      shown ? count(shown, "run") + (wanted.before ? ", older ones" : "") : "",
    ),
    first,
    older,
  );
}

function nothingLikeThat() {
  return el(
    "div",
    { class: "empty" },
    el("h2", null, "No matching runs"),
    el("p", null, "Change or clear the filters."),
  );
}

/** A link for a searched part of an id, which may be the complete id of an older run.
 *  @param {Wanted} wanted */
function exactly(wanted) {
  if (!wanted.search) return null;
  return el(
    "p",
    { class: "faint" },
    "Runs with ",
    el("code", null, wanted.search),
    " in their id. ",
    el("a", { href: runUrl(wanted.search) }, "Open the run that has exactly this id"),
  );
}

function nothingYet() {
  return el(
    "div",
    { class: "empty" },
    el("h2", null, "No runs yet"),
    el(
      "p",
      null,
      "Start one from your program, with an id of your choice: ",
      el("code", null, 'flow.run("my-run-id", …)'),
      ". Or from a terminal:",
    ),
    commandLine("holdfast run MODULE:FLOW RUN_ID --input '{…}'"),
    commandLine("holdfast demo"),
    el("p", { class: "faint" }, "It appears here by itself."),
  );
}

// -- keys --------------------------------------------------------------------------------------------

/** @param {number} by */
function move(by) {
  const found = /** @type {NodeListOf<HTMLAnchorElement>} */ (page.querySelectorAll("a.run-id"));
  const links = [...found].filter((link) => link.checkVisibility());
  if (!links.length) return;
  const now = links.findIndex((link) => link === document.activeElement);
  const first = by > 0 ? 0 : links.length - 1;
  links[now < 0 ? first : Math.min(links.length - 1, Math.max(0, now + by))].focus();
}

shortcut("j", "Next run", () => move(1));
shortcut("k", "Previous run", () => move(-1));
shortcut("Enter", "Open the run that has the focus");
shortcut("n", "Older runs", () => {
  /** @type {HTMLButtonElement | null} */
  const older = parts.pages.querySelector("button.older:not([hidden])");
  older?.click();
});

clear(page);
append(
  page,
  el("h1", { class: "unseen" }, "Runs"),
  parts.needs,
  filters(begin),
  parts.exactly,
  table(),
  parts.empty,
  parts.pages,
);
fill();
addEventListener("popstate", () => {
  fill();
  begin();
});
let settling = 0;
onChange(() => {
  load();
  // The server caches its counts: when nothing changes, ask for them again.
  clearTimeout(settling);
  settling = setTimeout(load, SETTLED_MS);
});
ready.then(load, () => {});
