// A decision of a person, as a dialog of one or more stages: the meaning, the fields, a second
// confirmation with the affected effects, and the changes of the run if the decision came too late.
//
// A dialog does not change while it is open: a person decides on the text that they have read.
// @ts-check

import { act, get } from "../lib/api.js";
import { badge, byId, clear, el, inert, lines, unread } from "../lib/dom.js";
import { words } from "../lib/format.js";
import { Misfit, text } from "./fields.js";
import { announce, toast } from "../lib/shell.js";

/** @import { Acted, Acts, RunView } from "../lib/api-types.js" */
/** @import { Child } from "../lib/globals.js" */
/** @import { Field } from "./fields.js" */
/** @typedef {{ run: RunView, etag: string, changed: () => any }} Context */
/** @typedef {Pick<RunView, "run_id" | "status" | "held_reason"> & Partial<RunView>} Seen */
/** @typedef {string | { step: string, fate?: string, means?: string, what?: string }} Effect */
/** @typedef {object} Stage
 *  @property {string} title
 *  @property {Child} [about]
 *  @property {Field[]} [fields]
 *  @property {string} [button]
 *  @property {boolean} [danger]
 *  @property {boolean} [wide]
 *  @property {(values: Record<string, any>) => Promise<Stage | null | void>} send
 *  @property {(error: any) => Promise<Stage | null> | Stage | null} [conflict] */

const STRING = /("(?:[^"\\\n]|\\.)*")/;
const EXACT_CHARS = 100_000;
let opened = 0;

/** Open a dialog. A stage has: title, about (nodes), fields, button, danger, and `send(values)`,
 *  which performs it and returns the next stage, or null at the end.
 *  @param {Stage} stage */
export function decide(stage) {
  const opener = /** @type {HTMLElement | null} */ (document.activeElement);
  const dialog = el("dialog", { class: "decide", "aria-labelledby": `decide-${++opened}` });
  dialog.addEventListener("close", () => {
    dialog.remove();
    (opener?.isConnected ? opener : byId("main")).focus();
  });
  document.body.append(dialog);
  show(dialog, stage);
  dialog.showModal();
  first(dialog)?.focus();
  return dialog;
}

/**
 * @param {HTMLDialogElement} dialog
 * @returns {HTMLElement | null}
 */
function first(dialog) {
  return (
    dialog.querySelector("[data-first]") ??
    dialog.querySelector("form input:not([type=hidden]), form textarea, form select") ??
    dialog.querySelector("h2")
  );
}

/**
 * @param {HTMLDialogElement} dialog
 * @param {Stage} stage
 */
function show(dialog, stage) {
  const title = el("h2", { id: dialog.getAttribute("aria-labelledby"), tabindex: -1 }, stage.title);
  const trouble = el("div", { class: "trouble", role: "alert" });
  const fields = stage.fields ?? [];
  const go = stage.button
    ? el("button", { class: stage.danger ? "danger" : "primary", type: "submit" }, stage.button)
    : null;
  const back = el("button", { type: "button", class: "quiet" }, stage.button ? "Do nothing" : "Close");
  back.addEventListener("click", () => dialog.close());
  const form = el(
    "form",
    { method: "dialog", novalidate: true },
    title,
    el("div", { class: "about" }, stage.about ?? []),
    fields.map((field) => field.node),
    trouble,
    el("div", { class: "buttons" }, go, back),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    sent(dialog, stage, { form, trouble, fields });
  });
  clear(dialog, form);
  dialog.classList.toggle("wide", Boolean(stage.wide));
  dialog.scrollTop = 0;
}

/**
 * @param {HTMLDialogElement} dialog
 * @param {Stage} stage
 * @param {{ form: HTMLFormElement, trouble: HTMLElement, fields: Field[] }} parts
 */
async function sent(dialog, stage, { form, trouble, fields }) {
  if (form.dataset.busy) return;
  clear(trouble);
  try {
    const values = Object.fromEntries(fields.map((field) => [field.name, field.read()]));
    busy(form, true);
    moved(dialog, await stage.send(values));
  } catch (error) {
    if (error instanceof Misfit) {
      error.field.wrong(error.message);
      error.field.control.focus();
      return;
    }
    await refused(dialog, stage, error, trouble);
  } finally {
    busy(form, false);
  }
}

/**
 * @param {HTMLFormElement} form
 * @param {boolean} is
 */
function busy(form, is) {
  if (is) form.dataset.busy = "";
  else delete form.dataset.busy;
  for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (form.querySelectorAll("button[type=submit]"))) {
    button.disabled = is;
    button.setAttribute("aria-busy", String(is));
  }
}

/**
 * @param {HTMLDialogElement} dialog
 * @param {Stage | null | void} next
 */
function moved(dialog, next) {
  if (!next) return dialog.close();
  show(dialog, next);
  (next.fields?.length ? first(dialog) : dialog.querySelector("h2"))?.focus();
}

/**
 * @param {HTMLDialogElement} dialog
 * @param {Stage} stage
 * @param {any} error
 * @param {HTMLElement} trouble
 */
async function refused(dialog, stage, error, trouble) {
  if (error.status === 409 && stage.conflict) {
    const next = await stage.conflict(error);
    if (next) return moved(dialog, next);
  }
  clear(trouble, el("p", null, lines(error.message ?? String(error))));
}

// -- pieces of stages ---------------------------------------------------------------------------

/** A list of effects, with the fate of each.
 *  @param {Effect[]} effects
 *  @param {string} label */
export function effectList(effects, label) {
  const rows = effects.map((one) =>
    typeof one === "string"
      ? el("li", null, el("code", null, one))
      : el("li", { class: one.fate ? `fate-${one.fate}` : null }, el("code", null, one.step), " ", one.means ?? one.what ?? ""),
  );
  return el("ul", { class: "effects", "aria-label": label }, rows);
}

/** JSON exactly as the server wrote it. Each string is isolated: right-to-left text does not
 *  reorder its surroundings. Very long JSON is shown in logical order without isolation.
 *  @param {string} text
 *  @param {string} label */
export function exact(text, label = "Arguments") {
  const isLong = text.length > EXACT_CHARS;
  const about = { class: isLong ? "exact in-order" : "exact", dir: "ltr", tabindex: 0, "aria-label": label };
  const aside = (/** @type {string} */ one) => el("bdi", { dir: "ltr" }, one);
  const shown = isLong ? inert(text) : text.split(STRING).map((one, at) => (at % 2 ? aside(one) : inert(one)));
  return el("pre", about, shown);
}

/** The stored arguments of an approval or a doubt, as the server sent them.
 *  @param {{ args_text: string | null }} of
 *  @param {string} [label] */
export function exactArgs({ args_text: text }, label) {
  if (typeof text === "string") return exact(text, label);
  return el("p", { class: "trouble-box" }, "Its stored arguments cannot be shown here.");
}

/** The second confirmation: the affected effects, and the confirming button.
 *  @param {Pick<Stage, "title" | "about" | "button" | "send" | "conflict"> & { effects: Effect[] }} of
 *  @returns {Stage} */
export function confirmation({ title, about, effects, button, send, conflict }) {
  return {
    title,
    danger: true,
    button,
    send,
    conflict,
    about: [about, effects.length ? effectList(effects, "Effects concerned") : null],
  };
}

/** The stage for a run that changed before the decision.
 *  @param {any} error
 *  @param {Seen | null} before
 *  @param {() => any} [look]
 *  @returns {Promise<Stage & { about: Child[] }>} */
export async function tooLate(error, before, look) {
  /** @type {Child[]} */
  const about = [el("p", null, lines(error.message))];
  if (before) {
    const changed = get("run", { id: before.run_id }).then(({ run }) => changes(before, run));
    about.push(await changed.catch((error) => unread("The changes", error)));
  }
  about.push(el("p", null, "Your decision was not applied."));
  announce("The run has changed. Your decision was not applied.");
  return {
    title: "The run has changed",
    about,
    button: "Reload",
    send: async () => {
      await look?.();
      return null;
    },
  };
}

/**
 * @param {Seen} before
 * @param {Seen} now
 */
function changes(before, now) {
  /** @type {Record<string, (run: Seen) => string | HTMLElement>} */
  const shown = {
    Status: (run) => badge(run.status, run.held_reason),
    Generation: (run) => String(run.generation ?? ""),
    "At step": (run) => run.current_step ?? "–",
    "Steps recorded": (run) => String(run.totals?.steps ?? ""),
    "Waits for": (run) => words(run.waiting_for ?? "–"),
  };
  const text = (/** @type {string | HTMLElement} */ node) => (typeof node === "string" ? node : node.textContent);
  const rows = Object.entries(shown)
    .map(([name, of]) => ({ name, was: of(before), is: of(now) }))
    .filter(({ was, is }) => text(was) !== text(is))
    .map(({ name, was, is }) =>
      el("tr", null, el("th", { scope: "row" }, name), el("td", null, was), el("td", null, is)),
    );
  if (!rows.length) return el("p", null, "Its journal has new entries.");
  const head = el("tr", null, ["", "You saw", "It is now"].map((name) => el("th", { scope: "col" }, name)));
  return el("table", { class: "changes" }, el("thead", null, head), el("tbody", null, rows));
}

/** Show the result of an action.
 *  @param {Partial<Acted> | null} answer
 *  @param {string} otherwise */
export function done(answer, otherwise = "Done.") {
  const said = answer?.did ? `${answer.did[0].toUpperCase()}${answer.did.slice(1)}.` : otherwise;
  const more = [];
  if (answer?.freed?.length) more.push(`Freed too: ${answer.freed.join(", ")}.`);
  toast([said, ...more].join(" "), "good");
}

// -- one request, the same for all actions ------------------------------------------------------

/** Return the `send` of a stage: it performs the action, shows the result, and lets the page
 *  reload. The context has the run, the seen version, and `changed`.
 *  @template {keyof Acts} P
 *  @param {Context} context
 *  @param {P} path
 *  @param {string} [otherwise]
 *  @returns {(body: Acts[P]["body"]) => Promise<null>} */
export function sender({ run, etag, changed }, path, otherwise) {
  return async (body) => {
    const answer = await act(path, /** @type {Acts[P]["asked"]} */ ({ id: run.run_id }), body, etag);
    done(/** @type {Acted} */ (answer), otherwise);
    await changed();
    return null;
  };
}

/** The stage after a conflict: effects that need a second confirmation (`again` makes that stage),
 *  or the changes of the run.
 *  @param {Context} context
 *  @param {(effects: string[], error: any) => Stage} [again]
 *  @returns {(error: any) => Promise<Stage> | Stage} */
export function conflicts(context, again) {
  return (error) => {
    const effects = error.data.effects;
    if (effects?.length && again) return again(effects, error);
    return tooLate(error, context.run, context.changed);
  };
}

/** The field for the reason of a decision. */
export const reason = (help = "Visible to others; optional.") =>
  text({ name: "reason", label: "Reason", help });

/** Sentences as paragraphs; null is omitted.
 *  @param {...string | null} sentences */
export const told = (...sentences) => sentences.filter(Boolean).map((one) => el("p", null, one));

/** The id of a run, as the first line of a dialog.
 *  @param {{ run_id: string }} run */
export const named = (run) => el("p", null, el("code", { class: "run-id" }, run.run_id));
