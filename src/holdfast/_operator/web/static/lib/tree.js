// A value as a tree: objects and lists open and close; long ones are shown in parts.
//
// Keys on an object or list: Right opens, Left closes, Up and Down go to the previous or next one.
// Parts are made when they are first opened, so that a large value costs nothing until it is read.
// @ts-check

import { append, clear, el, lines, outside } from "./dom.js";
import { bytes, count, number } from "./format.js";
import { sourceOf } from "./numbers.js";

/** @import { Child } from "./globals.js" */

/** @typedef {{ open: number, full: (() => void) | null }} Options */

const PART = 100;
const BARE_MAX = 40;
const STRING_CHARS = 600;
const OPEN_CHARS = 400;
const CLIPPED = "…clipped";
const DEPTH = 8;

/** Return a value as a tree. `open` is the number of levels that are open initially; the button of
 *  a value that the server has cut calls `full`.
 *  @param {any} value
 *  @param {Partial<Options> & { label?: string }} [options] */
export function tree(value, { open = 2, full = null, label = "Value" } = {}) {
  const root = el("div", { class: "tree", role: "group", "aria-label": label });
  // The fields of a small object are shown directly, without a line that counts them.
  const fields = isObject(value) && !isClipped(value) ? Object.entries(value) : [];
  if (fields.length && fields.length <= BARE_MAX) for (const [name, one] of fields) root.append(node(
    name,
    one,
    { open: open - 1, full },
    sourceOf(value, name),
  ));
  else root.append(node(null, value, { open, full }));
  root.addEventListener("keydown", walk);
  return root;
}

/** Return whether the server has cut a part of this value.
 *  @param {any} value */
export function isClipped(value) {
  return isObject(value) && Object.keys(value).length === 1 && typeof value[CLIPPED] === "number";
}

/** @param {any} value */
function isObject(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value);
}

/**
 * @param {string | number | null} name
 * @param {any} value
 * @param {Options} options
 * @param {string} [source]
 * @returns {HTMLElement}
 */
function node(name, value, options, source) {
  if (isClipped(value)) return leaf(name, cut(value, options));
  if (Array.isArray(value)) return branch(name, value, value.map((one, at) => [at, one]), options);
  if (isObject(value)) return branch(name, value, Object.entries(value), options);
  return leaf(name, scalar(value, source));
}

/** @param {string | number | null} name */
function label(name) {
  if (name === null) return null;
  return el("span", { class: typeof name === "number" ? "tree-index" : "tree-name" }, `${name}`);
}

/**
 * @param {string | number | null} name
 * @param {Child} shown
 */
function leaf(name, shown) {
  return el(
    "div",
    { class: "tree-leaf" },
    label(name),
    name === null ? null : el("span", { class: "faint" }, ": "),
    shown,
  );
}

/**
 * @param {any} value
 * @param {Options} options
 */
function cut(value, { full }) {
  const told = `cut: ${bytes(value[CLIPPED])}`;
  if (!full) return el("span", { class: "faint" }, told);
  const button = el(
    "button",
    { type: "button", class: "quiet" },
    `Show all (${bytes(value[CLIPPED])})`,
  );
  button.addEventListener("click", full);
  return button;
}

// -- scalars ------------------------------------------------------------------------------------

/** A string, number, boolean or null; a number in its source text, if given.
 *  @param {any} value
 *  @param {string} [source] */
export function scalar(value, source) {
  if (typeof value === "string") return string(value);
  const kind = value === null ? "null" : typeof value;
  return el("span", { class: `tree-${kind}` }, source ?? String(value));
}

/** @param {string} value */
function string(value) {
  if (value.length <= STRING_CHARS) return text(value);
  const box = el("span", { class: "tree-long" });
  const more = el(
    "button",
    { type: "button", class: "quiet" },
    `Show all (${number(value.length)} characters)`,
  );
  more.addEventListener("click", () => {
    const all = text(value);
    clear(box, all);
    all.tabIndex = -1;
    all.focus();
  });
  return append(box, text(value.slice(0, STRING_CHARS)), "… ", more);
}

/** @param {string} value */
function text(value) {
  if (value === "") return el("span", { class: "faint" }, "empty string");
  if (value.includes("\n")) return el("span", { class: "tree-string block" }, lines(value));
  return el("span", { class: "tree-string" }, outside(value));
}

// -- branches -----------------------------------------------------------------------------------

/**
 * @param {string | number | null} name
 * @param {any} value
 * @param {[string | number, any][]} entries
 * @param {Options} options
 */
function branch(name, value, entries, options) {
  const isList = Array.isArray(value);
  const size = isList ? count(entries.length, "element") : count(entries.length, "field");
  if (!entries.length) return leaf(
    name,
    el("span", { class: "faint" }, isList ? "empty list" : "no fields"),
  );
  const hint = el("span", { class: "tree-hint" }, preview(value));
  const summary = el(
    "summary",
    null,
    label(name),
    name === null ? null : " ",
    el("span", { class: "faint" }, size),
    " ",
    hint,
  );
  const box = el("details", { class: "tree-branch" }, summary);
  const inside = { ...options, open: options.open - 1 };
  const make = () => box.open && box.children.length === 1 && parts(box, value, entries, inside, 0);
  box.addEventListener("toggle", make);
  box.open = options.open > 0 && (name === null || sizeOf(value) <= OPEN_CHARS * options.open);
  make();
  return box;
}

/** The length of a value as text; a deeply nested one counts as long.
 *  @param {any} value */
export function sizeOf(value) {
  try {
    return JSON.stringify(value).length;
  } catch {
    return Infinity;
  }
}

/**
 * @param {HTMLElement} box
 * @param {any} value
 * @param {[string | number, any][]} entries
 * @param {Options} options
 * @param {number} from
 */
function parts(box, value, entries, options, from) {
  const until = Math.min(entries.length, from + PART);
  for (const [name, one] of entries.slice(from, until)) {
    box.append(node(name, one, options, sourceOf(value, name)));
  }
  if (until === entries.length) return;
  const left = entries.length - until;
  const more = el(
    "button",
    { type: "button", class: "quiet" },
    `Show ${number(Math.min(PART, left))} more of ${number(left)}`,
  );
  more.addEventListener("click", () => {
    more.remove();
    parts(box, value, entries, options, until);
  });
  box.append(more);
}

/** The beginning of a value on one short line, for closed branches.
 *  @param {any} value
 *  @param {number} chars
 *  @param {string} [source] */
export function preview(value, chars = 80, source = undefined) {
  const told = short(value, chars, source);
  return told.length <= chars ? told : `${told.slice(0, chars)}…`;
}

/**
 * @param {any} value
 * @param {number} chars
 * @param {string | undefined} source
 * @param {number} depth
 * @returns {string}
 */
function short(value, chars, source, depth = 0) {
  if (typeof value === "string") return JSON.stringify(value.slice(0, chars + 1));
  if (value === null || typeof value !== "object") return source ?? String(value);
  if (depth === DEPTH) return "…";
  let told = "";
  const isList = Array.isArray(value);
  for (const [name, one] of Object.entries(value)) {
    if (told.length > chars) break;
    told += (told ? ", " : "") + (isList ? "" : `${name}: `) + short(one, chars - told.length, sourceOf(value, name), depth + 1);
  }
  return isList ? `[${told}]` : `{${told}}`;
}

// -- keys ---------------------------------------------------------------------------------------

/** @param {KeyboardEvent} event */
function walk(event) {
  const [target, root] = [event.target, event.currentTarget];
  if (!(target instanceof Element) || !(root instanceof Element)) return;
  const summary = target.closest("summary");
  if (!summary || event.altKey || event.ctrlKey || event.metaKey) return;
  const box = /** @type {HTMLDetailsElement} */ (summary.parentElement);
  const outer = box.parentElement?.closest("details.tree-branch");
  const all = [...root.querySelectorAll("summary")].filter((one) => one.checkVisibility());
  const at = all.indexOf(summary);
  /** @type {Record<string, () => void>} */
  const moves = {
    ArrowRight: () => (box.open ? all[at + 1]?.focus() : (box.open = true)),
    ArrowLeft: () => (box.open ? (box.open = false) : outer?.querySelector("summary")?.focus()),
    ArrowDown: () => all[at + 1]?.focus(),
    ArrowUp: () => all[at - 1]?.focus(),
  };
  if (!moves[event.key]) return;
  event.preventDefault();
  moves[event.key]();
}
