// The list of runs: what needs a person on top, filters that stand in the address, live status.

import { get } from "/static/api.js";
import { ago, append, badge, clear, el, keep, money, number, runLink, runUrl, say, sign, time, words } from "/static/dom.js";
import { commandLine, count } from "/static/dom.js";
import { needs } from "/static/needs.js";
import { announce, failed, onChange, ready, shortcut } from "/static/shell.js";

const STATUSES = ["queued", "running", "waiting", "held", "failed", "completed", "cancelled", "rolled_back"];
const REASONS = ["in_doubt", "budget", "diverged", "drift", "quarantined", "corrupt", "paused", "moved"];
const FINDINGS = ["stuck", "looping", "duplicate_action", "partial_failure", "runaway_cost"];
const AGES = { "5m": "5 minutes", "1h": "1 hour", "6h": "6 hours", "1d": "1 day", "7d": "7 days" };
const TEXTS = { id_part: "Run id has", flow: "Flow", queue: "Queue", tag: "Tag (name=value)" };
const FIELDS = ["id_part", "flow", "queue", "tag", "held", "finding", "older_than", "flow_version", "parent"];

const page = document.getElementById("runs");
const parts = {};
let shownIds = null;

// -- what is asked for, as it stands in the address ------------------------------------------------

function asked() {
  const query = new URLSearchParams(location.search);
  const wanted = { status: query.getAll("status"), before: query.get("before") };
  for (const name of FIELDS) wanted[name] = query.get(name) ?? "";
  return wanted;
}

function isFiltered(wanted) {
  return wanted.status.length > 0 || FIELDS.some((name) => wanted[name]);
}

function go(wanted) {
  const query = new URLSearchParams();
  for (const status of wanted.status) query.append("status", status);
  for (const name of [...FIELDS, "before"]) if (wanted[name]) query.set(name, wanted[name]);
  const text = query.toString();
  history.pushState(null, "", text ? `/?${text}` : "/");
  shownIds = null;
  fill();
  load();
}

function change(changes) {
  go({ ...asked(), before: null, ...changes });
}

// -- filters -----------------------------------------------------------------------------------------

function filters() {
  parts.chips = el("div", { class: "chips", role: "group", "aria-label": "Status" });
  parts.fields = {};
  const form = el("form", { class: "run-filters", "aria-label": "Filters" });
  for (const [name, label] of Object.entries(TEXTS)) form.append(textField(name, label));
  form.append(
    choice("held", "Held for", REASONS.map((reason) => [reason, words(reason)])),
    choice("finding", "Finding", FINDINGS.map((kind) => [kind, words(kind)])),
    choice("older_than", "Not changed for", Object.entries(AGES)),
  );
  parts.reset = el("button", { type: "button", class: "quiet" }, "Clear filters");
  parts.reset.addEventListener("click", () => change({ status: [], ...Object.fromEntries(FIELDS.map((name) => [name, ""])) }));
  form.append(parts.reset, el("button", { class: "unseen" }, "Apply filters"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    change(texts());
  });
  const more = el("details", { class: "more-filters" }, el("summary", null, "Filters"), form);
  const wide = matchMedia("(min-width: 720px)");
  const fit = () => (more.open = wide.matches || FIELDS.some((name) => asked()[name]));
  wide.addEventListener("change", fit);
  fit();
  return el("div", { class: "stack-small" }, parts.chips, more);
}

function texts() {
  return Object.fromEntries(Object.keys(TEXTS).map((name) => [name, parts.fields[name].value.trim()]));
}

function textField(name, label) {
  const input = el("input", { id: `by-${name}`, autocomplete: "off", spellcheck: "false" });
  input.addEventListener("change", () => change(texts()));
  parts.fields[name] = input;
  return el("div", { class: "field" }, el("label", { for: input.id }, label), input);
}

function choice(name, label, options) {
  const select = el(
    "select",
    { id: `by-${name}` },
    el("option", { value: "" }, "any"),
    options.map(([value, text]) => el("option", { value }, text)),
  );
  select.addEventListener("change", () => change({ [name]: select.value }));
  parts.fields[name] = select;
  return el("div", { class: "field" }, el("label", { for: select.id }, label), select);
}

/** Show in the filters what the address says. */
function fill() {
  const wanted = asked();
  for (const [name, field] of Object.entries(parts.fields)) {
    if (document.activeElement === field && field.tagName === "INPUT") continue;
    field.value = wanted[name];
    if (field.tagName === "SELECT" && field.value !== wanted[name]) {
      // A value that the list does not have, from an address: it counts all the same.
      field.append(el("option", { value: wanted[name] }, wanted[name]));
      field.value = wanted[name];
    }
  }
  parts.reset.hidden = !isFiltered(wanted);
  chips({});
}

function chips(counts) {
  const wanted = asked();
  const shown = [{ status: null, on: wanted.status.length === 0 }];
  for (const status of STATUSES) shown.push({ status, on: wanted.status.includes(status), count: counts[status] });
  keep(parts.chips, shown, (chip) => chip.status ?? "all", chipNode, (node, chip) => {
    node.setAttribute("aria-pressed", String(chip.on));
    if (chip.count !== undefined) say(node.lastElementChild, number(chip.count));
    node.lastElementChild.hidden = chip.count === undefined && !node.lastElementChild.textContent;
  });
}

/** What the server counts is by queue: what is ready or delayed there, at work, failed, held. */
function counted({ ready, running, failed: broken, held }) {
  return { queued: ready, running, failed: broken, held };
}

function chipNode({ status }) {
  const node = el(
    "button",
    { type: "button", class: `chip is-${status ?? "all"}` },
    status ? sign(status) : null,
    status ? words(status) : "All",
    el("span", { class: "chip-count", hidden: true }),
  );
  node.addEventListener("click", (event) => chosen(status, event.shiftKey || event.ctrlKey || event.metaKey));
  return node;
}

/** A click shows one status; with shift or ctrl it is added or taken away. */
function chosen(status, several) {
  const now = asked().status;
  if (status === null) return change({ status: [] });
  if (several) return change({ status: now.includes(status) ? now.filter((one) => one !== status) : [...now, status] });
  change({ status: now.length === 1 && now[0] === status ? [] : [status] });
}

// -- the table ---------------------------------------------------------------------------------------

function table() {
  const heads = [["Run"], ["Status"], ["Flow"], ["Where"], ["Steps", "num"], ["Tokens", "num"], ["Cost", "num"], ["Changed"], ["Started"]];
  parts.rows = el("tbody", null);
  parts.table = el(
    "div",
    { class: "table", hidden: true },
    el(
      "table",
      { class: "cards runs" },
      el("caption", { class: "unseen" }, "Runs, newest first"),
      el("thead", null, el("tr", null, heads.map(([text, kind]) => el("th", { scope: "col", class: kind }, text)))),
      parts.rows,
    ),
  );
  return parts.table;
}

const tokens = (usage) => (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);

function rowNode(run) {
  const cell = (label, kind) => el("td", { "data-label": label, class: kind });
  const first = el("th", { scope: "row", class: "card-title" }, runLink(run.run_id));
  const tags = Object.entries(run.tags ?? {}).map(([name, value]) => el("span", { class: "tag" }, `${name}=${value}`));
  if (tags.length) first.append(el("div", { class: "tags" }, tags));
  return el("tr", { class: "choosable" }, first, cell("Status", "of-status"), cell("Flow", "of-flow"), cell("Where", "where"), cell("Steps", "num"), cell("Tokens", "num"), cell("Cost", "num"), cell("Changed", "nowrap changed"), cell("Started", "nowrap started"));
}

function updateRow(node, run) {
  const state = JSON.stringify(run);
  if (node.shown === state) return;
  node.shown = state;
  const [, status, flow, where, steps, used, cost, changed, started] = node.children;
  const { usage = {}, steps: done = 0 } = run.totals ?? {};
  clear(status, badge(run.status, run.held_reason));
  clear(flow, el("span", { class: "mono" }, run.flow), run.version && run.version !== "1" ? el("span", { class: "faint" }, ` v${run.version}`) : null);
  clear(where, whereabouts(run));
  say(steps, number(done));
  say(used, tokens(usage) ? number(tokens(usage)) : "–");
  used.classList.toggle("none", !tokens(usage));
  say(cost, usage.cost ? money(usage.cost) : "–");
  cost.classList.toggle("none", !usage.cost);
  clear(changed, ago(run.updated_at));
  clear(started, time(run.created_at));
}

function whereabouts(run) {
  if (run.waiting_for && run.status === "waiting") return run.waiting_for;
  if (!run.current_step || ["completed", "cancelled", "rolled_back"].includes(run.status)) return "";
  return el("span", { class: "mono" }, run.current_step);
}

// -- loading -----------------------------------------------------------------------------------------

let loading = false;
let again = false;

async function load() {
  if (loading) {
    again = true;
    return;
  }
  loading = true;
  do {
    again = false;
    await show().catch(troubled);
  } while (again);
  loading = false;
}

async function show() {
  const wanted = asked();
  const [answer] = await Promise.all([get("runs", { ...wanted, limit: 50 }), showNeeds(wanted)]);
  if (JSON.stringify(wanted) !== JSON.stringify(asked())) return;
  const runs = answer.runs ?? [];
  parts.table.hidden = runs.length === 0;
  keep(parts.rows, runs, (run) => run.run_id, rowNode, updateRow);
  mark(runs);
  chips(counted(answer.counts ?? {}));
  pages(wanted, answer.next, runs.length);
  if (parts.exactly.shown !== wanted.id_part) clear(parts.exactly, exactly(wanted));
  parts.exactly.shown = wanted.id_part;
  clear(parts.empty, runs.length ? null : isFiltered(wanted) || wanted.before ? nothingLikeThat() : nothingYet());
}

function troubled(error) {
  failed(error);
  if (error.status !== 400) return;
  parts.table.hidden = true;
  clear(parts.empty, el("div", { class: "empty" }, el("h2", null, "These filters do not work"), el("p", null, error.message)));
}

function mark(runs) {
  const ids = new Set(runs.map((run) => run.run_id));
  if (shownIds) {
    for (const id of ids) if (!shownIds.has(id)) parts.rows.kept.get(id)?.classList.add("arrived");
  } else announce(count(runs.length, "run") + " shown");
  shownIds = ids;
}

async function showNeeds(wanted) {
  const there = isFiltered(wanted) || wanted.before ? null : await needs().catch(() => null);
  if (there && parts.needs.firstElementChild?.dataset.state === there.dataset.state) return;
  if (parts.needs.contains(document.activeElement) && there) return;
  clear(parts.needs, there);
}

function pages(wanted, next, shown) {
  const first = el("button", { type: "button", hidden: !wanted.before }, "Newest");
  first.addEventListener("click", () => go({ ...wanted, before: null }));
  const older = el("button", { type: "button", hidden: !next }, "Older");
  older.addEventListener("click", () => {
    go({ ...wanted, before: next });
    scrollTo(0, 0);
  });
  const state = JSON.stringify([wanted, next, shown]);
  if (parts.pages.shown === state) return;
  parts.pages.shown = state;
  clear(parts.pages, el("span", { class: "faint" }, shown ? count(shown, "run") + (wanted.before ? ", older ones" : "") : ""), first, older);
}

function nothingLikeThat() {
  return el("div", { class: "empty" }, el("h2", null, "No runs like that"), el("p", null, "Other filters may show some."));
}

/** A part of an id was asked for: it may be an id itself, of an older run. */
function exactly(wanted) {
  if (!wanted.id_part) return null;
  return el("p", { class: "faint" }, "Runs with ", el("code", null, wanted.id_part), " in their id. ", el("a", { href: runUrl(wanted.id_part) }, "Open the run that has exactly this id"));
}

function nothingYet() {
  return el(
    "div",
    { class: "empty" },
    el("h2", null, "No runs yet"),
    el("p", null, "Start one from your program, with an id of your choice: ", el("code", null, 'flow.run("my-run-id", …)'), ". Or from a terminal:"),
    commandLine("holdfast run MODULE:FLOW RUN_ID --input '{…}'"),
    commandLine("holdfast demo"),
    el("p", { class: "faint" }, "It appears here by itself."),
  );
}

// -- keys --------------------------------------------------------------------------------------------

function move(by) {
  const links = [...page.querySelectorAll("a.run-id")].filter((link) => link.checkVisibility());
  if (!links.length) return;
  const now = links.indexOf(document.activeElement);
  const next = now < 0 ? (by > 0 ? 0 : links.length - 1) : Math.min(links.length - 1, Math.max(0, now + by));
  links[next].focus();
}

shortcut("j", "Next run", () => move(1));
shortcut("k", "Run before", () => move(-1));
shortcut("Enter", "Open the run that has the focus");
shortcut("n", "Older runs", () => [...parts.pages.querySelectorAll("button:not([hidden])")].at(-1)?.click());

parts.needs = el("div", null);
parts.empty = el("div", null);
parts.exactly = el("div", null);
parts.pages = el("nav", { class: "pages", "aria-label": "Pages of the list" });
clear(page);
append(page, el("h1", { class: "unseen" }, "Runs"), parts.needs, filters(), parts.exactly, table(), parts.empty, parts.pages);
fill();
addEventListener("popstate", () => {
  shownIds = null;
  fill();
  load();
});
onChange(load);
ready.then(load, () => {});
