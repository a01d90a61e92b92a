// The differences of two values: a list of paths with before and after, and a line diff for long
// texts.
// @ts-check

import { append, el, lines } from "./dom.js";
import { number } from "./format.js";
import { sourceOf } from "./numbers.js";
import { scalar, tree } from "./tree.js";
import { messagesIn } from "./messages.js";
import { conversation } from "./values.js";

/** @import { Difference } from "./api-types.js" */
/** @import { Message } from "./messages.js" */
/** @typedef {[" " | "+" | "-", string]} Line */

const LINES_MAX = 400;
const AROUND = 2;
const KINDS = { added: ["+", "added"], removed: ["−", "removed"], changed: ["±", "changed"] };

/** Return a list of differences: `{path, kind, before, after}` each.
 *  @param {Difference[]} found
 *  @param {{ cut?: boolean }} [options] */
export function differencesView(found, { cut = false } = {}) {
  if (!found.length) return el("p", { class: "faint" }, "Nothing changed.");
  const rows = found.map(difference);
  const list = el("ul", { class: "differences", "aria-label": "Differences" }, rows);
  return cut ? append(
    el("div", null),
    list,
    el("p", { class: "faint" }, `Only the first ${number(found.length)} are listed.`),
  ) : list;
}

/** @param {Difference} found */
function difference(found) {
  const { path, kind } = found;
  const [mark, told] = KINDS[kind] ?? ["", kind];
  return el(
    "li",
    { class: `difference is-${kind}` },
    el(
      "div",
      null,
      el("span", { class: "difference-mark", "aria-hidden": "true" }, mark),
      el("code", null, path || "the whole value"),
      el("span", { class: "faint" }, ` ${told}`),
    ),
    kind === "changed" ? change(found) : one(found, kind === "added" ? "after" : "before"),
  );
}

/** @param {Difference} found */
function change(found) {
  const { before, after } = found;
  if (typeof before === "string" && typeof after === "string" && (before + after).includes("\n")) {
    const compared = lineDifferences(split(before), split(after));
    if (compared) return lineView(compared);
  }
  return el("div", { class: "before-after" }, side(found, "before"), side(found, "after"));
}

/** @type {(text: string) => string[]} */
const split = (text) => text.replace(/\n$/, "").split("\n");

/**
 * @param {Difference} found
 * @param {"before" | "after"} name
 */
function side(found, name) {
  return el(
    "div",
    { class: `side is-${name}` },
    el("span", { class: "unseen" }, `${name}: `),
    one(found, name),
  );
}

/**
 * @param {Difference} found
 * @param {"before" | "after"} name
 */
function one(found, name) {
  const value = found[name];
  if (value === null || typeof value !== "object") return el(
    "div",
    { class: "side-text" },
    scalar(value, sourceOf(found, name)),
  );
  const messages = messagesIn(value, 1);
  return messages ? conversation(messages) : tree(value, { open: 1 });
}

// -- lines --------------------------------------------------------------------------------------

/** Return `[mark, line]` pairs, mark " ", "+" or "-", by the longest common run of lines; null if
 *  there are too many lines to compare. Pure.
 *  @param {string[]} before
 *  @param {string[]} after
 *  @returns {Line[] | null} */
export function lineDifferences(before, after) {
  let begin = 0;
  while (begin < before.length && begin < after.length && before[begin] === after[begin]) begin++;
  let end = 0;
  const room = Math.min(before.length, after.length) - begin;
  while (end < room && before.at(-1 - end) === after.at(-1 - end)) end++;
  const old = before.slice(begin, before.length - end);
  const now = after.slice(begin, after.length - end);
  if (old.length > LINES_MAX || now.length > LINES_MAX) return null;
  const same = (/** @type {string} */ line) => /** @type {Line} */ ([" ", line]);
  return [
    ...before.slice(0, begin).map(same),
    ...middle(old, now),
    ...before.slice(before.length - end).map(same),
  ];
}

/**
 * @param {string[]} old
 * @param {string[]} now
 */
function middle(old, now) {
  const table = Array.from({ length: old.length + 1 }, () => new Uint16Array(now.length + 1));
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      const skipped = Math.max(table[i + 1][j], table[i][j + 1]);
      table[i][j] = old[i] === now[j] ? table[i + 1][j + 1] + 1 : skipped;
    }
  }
  /** @type {Line[]} */
  const marked = [];
  let i = 0;
  let j = 0;
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      marked.push([" ", old[i++]]);
      j++;
      continue;
    }
    const isGone = i < old.length && (j === now.length || table[i + 1][j] >= table[i][j + 1]);
    marked.push(isGone ? ["-", old[i++]] : ["+", now[j++]]);
  }
  return marked;
}

/** Unchanged lines are shown only near changed ones.
 *  @param {Line[]} marked */
function lineView(marked) {
  const near = marked.map((_, at) => marked.slice(
    Math.max(0, at - AROUND),
    at + AROUND + 1,
  ).some(([mark]) => mark !== " "));
  const box = el("div", { class: "lines" });
  let hidden = 0;
  const flush = () => {
    if (hidden) box.append(el(
      "div",
      { class: "line is-left-out" },
      `${number(hidden)} unchanged lines`,
    ));
    hidden = 0;
  };
  marked.forEach(([mark, text], at) => {
    if (!near[at]) return void hidden++;
    flush();
    const kind = { "+": "is-added", "-": "is-removed", " ": "" }[mark];
    const said = { "+": "added: ", "-": "removed: ", " ": "" }[mark];
    box.append(el(
      "div",
      { class: `line ${kind}` },
      el("span", { class: "line-mark", "aria-hidden": "true" }, mark),
      el("span", { class: "unseen" }, said),
      el("span", { class: "line-text" }, lines(text)),
    ));
  });
  flush();
  return box;
}
