// The filters of the list of runs. They are part of the address, so that a filtered list can be
// bookmarked, shared, and reached with the back button.
// @ts-check

import { el, inside, keep, say, sign } from "../lib/dom.js";
import { number, words } from "../lib/format.js";

/** @typedef {"search" | "flow" | "queue" | "tag" | "held_reason" | "finding" | "older_than" | "version" | "parent"} Name */
/** @typedef {{ status: string | null, on: boolean, count?: number | string }} Chip */
/** @typedef {{ chips: HTMLElement, reset: HTMLElement, fields: Partial<Record<Name, HTMLInputElement | HTMLSelectElement>> }} Parts */
/** @typedef {Record<Name, string> & { status: string[], before: string | null }} Wanted */

const STATUSES = [
  "queued",
  "running",
  "waiting",
  "held",
  "failed",
  "completed",
  "cancelled",
  "rolled_back",
];
const REASONS = [
  "in_doubt",
  "budget",
  "diverged",
  "drift",
  "quarantined",
  "corrupt",
  "paused",
  "moved",
];
const FINDINGS = ["stuck", "looping", "duplicate_action", "partial_failure", "runaway_cost"];
const AGES = { "5m": "5 minutes", "1h": "1 hour", "6h": "6 hours", "1d": "1 day", "7d": "7 days" };
/** @type {[Name, string][]} */
const TEXTS = [["search", "Run id has"], ["flow", "Flow"], ["queue", "Queue"], ["tag", "Tag (name=value)"]];
/** @type {Name[]} */
const FIELDS = [
  "search",
  "flow",
  "queue",
  "tag",
  "held_reason",
  "finding",
  "older_than",
  "version",
  "parent",
];

const parts = /** @type {Parts} */ ({ fields: {} });
let changed = () => {};

// -- filters in the address
// ------------------------------------------------------------------------

/** The filters of the address.
 *  @returns {Wanted} */
export function asked() {
  const query = new URLSearchParams(location.search);
  return { status: query.getAll("status"), before: query.get("before"), ...texts((name) => query.get(name) ?? "") };
}

/** One string for each field.
 *  @param {(name: Name) => string} of
 *  @returns {Record<Name, string>} */
function texts(of) {
  return /** @type {Record<Name, string>} */ (Object.fromEntries(FIELDS.map((name) => [name, of(name)])));
}

/** Whether any filter is set.
 *  @param {Wanted} wanted */
export function isFiltered(wanted) {
  return wanted.status.length > 0 || FIELDS.some((name) => wanted[name]);
}

/** Set other filters, and reload the list.
 *  @param {Wanted} wanted */
export function go(wanted) {
  const query = new URLSearchParams();
  for (const status of wanted.status) query.append("status", status);
  for (const name of FIELDS) if (wanted[name]) query.set(name, wanted[name]);
  if (wanted.before) query.set("before", wanted.before);
  const text = query.toString();
  history.pushState(null, "", text ? `/?${text}` : "/");
  fill();
  changed();
}

/** @param {Partial<Wanted>} changes */
function change(changes) {
  go({ ...asked(), before: null, ...changes });
}

// -- filters -----------------------------------------------------------------------------------------

/** Return the filters; `onchange` is called when they change.
 *  @param {() => void} onchange */
export function filters(onchange) {
  changed = onchange;
  parts.chips = el("div", { class: "chips", role: "group", "aria-label": "Status" });
  const form = el("form", { class: "run-filters", "aria-label": "Filters" });
  for (const [name, label] of TEXTS) form.append(textField(name, label));
  form.append(
    choice("held_reason", "Held for", REASONS.map((reason) => [reason, words(reason)])),
    choice("finding", "Finding", FINDINGS.map((kind) => [kind, words(kind)])),
    choice("older_than", "Not changed for", Object.entries(AGES)),
  );
  parts.reset = el("button", { type: "button", class: "quiet" }, "Clear filters");
  parts.reset.addEventListener(
    "click",
    () => change({ status: [], ...texts(() => "") }),
  );
  form.append(parts.reset, el("button", { class: "unseen" }, "Apply filters"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    change(typed());
  });
  const more = el("details", { class: "more-filters" }, el("summary", null, "Filters"), form);
  const wide = matchMedia("(min-width: 720px)");
  const fit = () => (more.open = wide.matches || FIELDS.some((name) => asked()[name]));
  wide.addEventListener("change", fit);
  fit();
  return el("div", { class: "stack-small" }, parts.chips, more);
}

/** The values of the text fields. */
function typed() {
  return Object.fromEntries(TEXTS.map(([name]) => [name, parts.fields[name]?.value.trim() ?? ""]));
}

/**
 * @param {Name} name
 * @param {string} label
 */
function textField(name, label) {
  const input = el("input", { id: `by-${name}`, autocomplete: "off", spellcheck: "false" });
  input.addEventListener("change", () => change(typed()));
  parts.fields[name] = input;
  return el("div", { class: "field" }, el("label", { for: input.id }, label), input);
}

/**
 * @param {Name} name
 * @param {string} label
 * @param {[string, string][]} options
 */
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

/** Set the fields to the filters of the address. */
export function fill() {
  const wanted = asked();
  for (const name of FIELDS) {
    const field = parts.fields[name];
    if (field === undefined) continue;
    if (document.activeElement === field && field.tagName === "INPUT") continue;
    field.value = wanted[name];
    if (field.tagName === "SELECT" && field.value !== wanted[name]) {
      // A value of the address that the list does not have: it still applies.
      field.append(el("option", { value: wanted[name] }, wanted[name]));
      field.value = wanted[name];
    }
  }
  parts.reset.hidden = !isFiltered(wanted);
  chips({});
}

/** Show the statuses, with the number of their runs if known.
 *  @param {Record<string, number | string>} counts */
export function chips(counts) {
  const wanted = asked();
  /** @type {Chip[]} */
  const shown = [{ status: null, on: wanted.status.length === 0 }];
  for (const status of STATUSES) {
    shown.push({ status, on: wanted.status.includes(status), count: counts[status] });
  }
  keep(parts.chips, shown, (chip) => chip.status ?? "all", chipNode, (node, chip) => {
    node.setAttribute("aria-pressed", String(chip.on));
    const count = inside(node, ".chip-count");
    if (chip.count !== undefined) say(count, chip.count === "?" ? "?" : number(chip.count));
    count.hidden = chip.count === undefined && !count.textContent;
  });
}

/** @param {Chip} chip */
function chipNode({ status }) {
  const node = el(
    "button",
    { type: "button", class: `chip is-${status ?? "all"}` },
    status ? sign(status) : null,
    status ? words(status) : "All",
    el("span", { class: "chip-count", hidden: true }),
  );
  node.addEventListener(
    "click",
    (event) => chosen(status, event.shiftKey || event.ctrlKey || event.metaKey),
  );
  return node;
}

/** A click shows one status; with shift or ctrl it is added or removed.
 *  @param {string | null} status
 *  @param {boolean} several */
function chosen(status, several) {
  const now = asked().status;
  if (status === null) return change({ status: [] });
  if (several) {
    const others = now.filter((one) => one !== status);
    return change({ status: others.length < now.length ? others : [...now, status] });
  }
  change({ status: now.length === 1 && now[0] === status ? [] : [status] });
}
