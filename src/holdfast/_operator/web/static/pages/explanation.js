// The explanation at the top of a run's page: status, known and unknown facts, next actions.
// @ts-check

import { keyOf, questionCard } from "../dialogs/answer.js";
import { ago, append, clear, commandLine, el, keep, lines, runLink, sign } from "../lib/dom.js";
import { words } from "../lib/format.js";
import { ready } from "../lib/shell.js";

/** @import { Action, ErrorView, Explanation, Finding, QuestionView, Run, RunView } from "../lib/api-types.js" */

/** @type {Record<string, string>} */
const SEVERE = { error: "is-bad", warning: "is-warn", info: "is-calm" };
const NEEDS = new Set(["held", "running"]);  // A running run is explained only if no process owns it.

/** Return the node; `show(answer)` fills it from the answer of `/api/v1/run`. `changed` is called
 *  when a question was answered here.
 *  @param {() => any} changed */
export function explanationView(changed) {
  const box = el("section", { class: "explanation", "aria-label": "Explanation" });
  const asked = el("div", { class: "stack-small" });
  const node = el("div", { class: "stack-small", hidden: true }, box, asked);
  let shown = "";
  return {
    node,
    /** @param {Run} answer */
    async show({ run, explanation, findings = [], questions = [] }) {
      const open = findings.filter((found) => found.open !== false);
      node.hidden = !explanation && !open.length && !questions.length;
      box.hidden = !explanation && !open.length;
      const mayAct = (await ready).role !== "viewer";
      keep(asked, questions, keyOf, (question) => questionCard(question, { changed, mayAct }));
      const state = JSON.stringify([explanation, open, run.status]);
      if (state === shown) return;
      shown = state;
      box.className = `explanation ${kindOf(run, questions)}`;
      keepFocus(box, () => clear(box, explanation && said(explanation, run), open.map(finding)));
    },
  };
}

/**
 * @param {RunView} run
 * @param {QuestionView[]} questions
 */
function kindOf(run, questions) {
  if (run.status === "failed") return "is-bad";
  return NEEDS.has(run.status) || questions.length ? "is-warn" : "is-calm";
}

/** Keep the focus during an update: the same part has it afterwards.
 *  @param {HTMLElement} box
 *  @param {() => void} update */
function keepFocus(box, update) {
  /** @returns {HTMLElement[]} */
  const parts = () => [...box.querySelectorAll(/** @type {"a"} */ ("button, a, code"))];
  const at = parts().findIndex((part) => part === document.activeElement);
  update();
  if (at >= 0) parts()[at]?.focus();
}

/**
 * @param {Explanation} explanation
 * @param {RunView} run
 */
function said({ case: told, known = [], unknown = [], actions = [], warning }, run) {
  const facts = (/** @type {string} */ title, /** @type {string[]} */ list, /** @type {string} */ kind) =>
    list.length ? el(
      "div",
      { class: kind },
      el("h3", null, title),
      el("ul", null, list.map((fact) => el("li", null, fact))),
    ) : null;
  return [
    warning ? el("p", { class: "trouble-box" }, warning) : null,
    el("p", { class: "case" }, sign(run.status), told),
    el(
      "div",
      { class: "facts-pair" },
      facts("Known", known, "known"),
      facts("Not known", unknown, "unknown"),
    ),
    actions.length
      ? el(
        "div",
        { class: "what-to-do" },
        el("h3", null, "What can be done now"),
        el("ul", { class: "doings" }, actions.map(action)),
      )
      : null,
  ];
}

/** @param {Action} action */
function action({ meaning, command }) {
  return append(el("li", null), el("span", null, meaning), command ? commandLine(command) : null);
}

/** @param {Finding} finding */
function finding({ kind, severity, text, actions = [], since }) {
  return el(
    "div",
    { class: `finding ${SEVERE[severity] ?? "is-calm"}` },
    el(
      "p",
      null,
      el("strong", null, `Finding: ${words(kind)}`),
      ` (${severity}) `,
      el("span", { class: "faint" }, ago(since)),
    ),
    el("p", null, text),
    actions.map((line) => commandLine(line)),
  );
}

/** An error from the journal.
 *  @param {ErrorView | null} error */
export function errorBox(error) {
  if (!error) return null;
  return el(
    "div",
    { class: "trouble-box" },
    el("code", null, error.type ?? "error"),
    error.message ? [": ", lines(error.message)] : null,
  );
}

/** The page of a run that does not exist, was deleted, or is damaged.
 *  @param {string} id
 *  @param {any} error */
export function cannotShow(id, error) {
  /** @type {Record<string, string>} */
  const meanings = {
    RunNotFound: "This store has no run with this id.",
    RunDeleted: "This run was deleted; only its id is kept.",
    Corrupt: "This run cannot be read: its records are damaged.",
  };
  return el(
    "div",
    { class: "empty" },
    el("h1", null, meanings[error.type] ?? "This run cannot be shown"),
    el("p", null, el("code", null, id)),
    el("p", null, error.message),
    error.type === "RunNotFound"
      ? el(
        "p",
        null,
        "See ",
        el("a", { href: `/?search=${encodeURIComponent(id)}` }, "runs whose id contains this"),
        ", or ",
        el("a", { href: "/" }, "all runs"),
        ".",
      )
      : null,
    error.type === "Corrupt" ? commandLine("holdfast store verify") : null,
  );
}

/** Links to other runs of the family.
 *  @param {RunView} run
 *  @returns {[string, HTMLElement][]} */
export function familyLinks(run) {
  /** @type {[string, HTMLElement][]} */
  const links = [];
  if (run.parent) links.push(["Called by", runLink(run.parent)]);
  if (run.origin) links.push(["Forked from", runLink(run.origin)]);
  return links;
}
