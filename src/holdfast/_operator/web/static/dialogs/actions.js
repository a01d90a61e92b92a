// The actions of a person on a run: the bar of buttons, and the dialog of each.
//
// Every action sends the version of the run that was seen (`If-Match`). If the run has changed, the
// server refuses the action and the dialog shows the changes. Nothing is resent automatically.
// @ts-check

import { act, get } from "../lib/api.js";
import { confirmation, conflicts, decide, done, effectList, named, reason, sender, told } from "./decision.js";
import { clear, el, set } from "../lib/dom.js";
import { count, length, money, words } from "../lib/format.js";
import * as fields from "./fields.js";
import { resume } from "./resume.js";
import { failed, ready } from "../lib/shell.js";
import { doubtsOf, settle } from "./settle.js";

/** @import { Fork, RollbackPreview, Rollback, RunView } from "../lib/api-types.js" */
/** @import { Context, Effect } from "./decision.js" */

const OPEN = new Set(["queued", "running", "waiting", "held"]);
const LIVE = new Set(["queued", "running", "waiting"]);
const FINAL = new Set(["completed", "cancelled", "rolled_back"]);

/** The name, whether it is possible now, the dialog, and the style of the button.
 *  @type {[name: string, fits: (run: RunView) => boolean, open: (context: Context) => any, looks: (run: RunView) => string][]} */
const ACTIONS = [
  ["Settle", (run) => run.held_reason === "in_doubt", settleDoubt, () => "primary"],
  ["Resume", (run) => run.status === "failed" || freed(run), resume, (run) => (isPoor(run) ? "" : "primary")],
  ["Set budget", (run) => run.budget !== null && !FINAL.has(run.status), setBudget, (run) => (isPoor(run) ? "primary" : "")],
  ["Pause", (run) => LIVE.has(run.status), pause, () => ""],
  ["Signal", (run) => OPEN.has(run.status), signal, () => ""],
  ["Fork", () => true, fork, () => ""],
  ["Roll back", (run) => run.status !== "rolled_back", rollback, () => "danger"],
  ["Cancel run", (run) => OPEN.has(run.status), cancel, () => "danger"],
];

/** @param {RunView} run */
function isPoor(run) {
  return run.held_reason === "budget";
}

/** Whether the run continues in another store, where all other actions belong.
 *  @param {RunView} run */
function isMoved(run) {
  return run.held_reason === "moved";
}

/** @param {RunView} run */
function freed(run) {
  return run.status === "held" && run.held_reason !== "in_doubt";
}

/** The buttons for a run, as a node. `bar.update(run, etag)` shows another state of it and keeps
 *  the focus. `changed` is called after an action, and after a conflict.
 *  @param {RunView} run
 *  @param {string} etag
 *  @param {{ changed?: () => any }} [options] */
export function actionBar(run, etag, { changed = () => location.reload() } = {}) {
  const bar = el("div", { class: "actions", role: "group", "aria-label": "Actions" });
  /** @type {Context & { role: string | null }} */
  const now = { run, etag, changed, role: null };
  /** @type {Map<string, HTMLButtonElement>} */
  const buttons = new Map();
  for (const [name, , open] of ACTIONS) {
    const button = el("button", { type: "button" }, name);
    button.addEventListener("click", () => {
      const { run, etag, changed } = now;
      Promise.resolve(open({ run, etag, changed })).catch(failed);
    });
    buttons.set(name, button);
  }
  const draw = () => {
    if (now.role === null) return;
    if (now.role === "viewer") {
      return clear(bar, el("p", { class: "faint" }, "Your role (viewer) cannot act on runs."));
    }
    const fits = ACTIONS.filter(([name, when]) => when(now.run) && (!isMoved(now.run) || name === "Resume")).map(([name, , , looks]) => {
      const button = /** @type {HTMLButtonElement} */ (buttons.get(name));
      set(button, "class", looks(now.run) || null);
      return button;
    });
    const same = fits.length === bar.children.length && fits.every((one, at) => one === bar.children[at]);
    if (!same) bar.replaceChildren(...fits);
  };
  /**
   * @param {RunView} run
   * @param {string} etag
   */
  const update = (run, etag) => {
    Object.assign(now, { run, etag });
    draw();
  };
  ready.then((who) => {
    now.role = who.role;
    draw();
  }, failed);
  return Object.assign(bar, { update });
}

// -- resuming and stopping ----------------------------------------------------------------------

/** @param {Context} context */
function settleDoubt(context) {
  return doubtsOf(context.run.run_id).then((doubts) => settle(doubts, context));
}

/** @param {Context} context */
function pause(context) {
  decide({
    title: "Pause the run",
    about: [named(context.run), told("A step that is executing now finishes. Then the run is held until somebody resumes it.")],
    fields: [reason()],
    button: "Pause",
    send: (values) => sender(context, "run/pause")({ reason: values.reason ?? "" }),
    conflict: conflicts(context),
  });
}

/** @param {Context} context */
function cancel(context) {
  const { run } = context;
  const stay = happened(run);
  const about = told(
    "It stops at its next step, and cannot be resumed.",
    openChildren(run),
    stay.length ? "Its effects are not undone:" : "It has no effects so far.",
  );
  decide({
    title: "Cancel the run",
    about: [named(run), about, stay.length ? effectList(stay, "Effects that stay") : null],
    fields: [reason()],
    button: "Cancel the run",
    danger: true,
    send: (values) => sender(context, "run/cancel")({ reason: values.reason ?? "" }),
    conflict: conflicts(context),
  });
}

/** The child runs that are cancelled with it: those that have not ended.
 *  @param {RunView} run */
function openChildren(run) {
  const open = (run.children ?? []).filter((child) => OPEN.has(child.status)).length;
  if (!open) return null;
  return `${count(open, "child run")} of it ${open === 1 ? "is" : "are"} cancelled too.`;
}

/** @param {RunView} run */
function happened(run) {
  return (run.steps ?? [])
    .filter((step) => step.effect && !step.superseded && step.status !== "failed")
    .map((step) => ({ step: step.key, means: words(step.status) }));
}

// -- rollback and fork --------------------------------------------------------------------------

/** @param {Context} context */
function rollback(context) {
  const { run } = context;
  const keys = (run.steps ?? []).filter((step) => !step.superseded).map((step) => step.key);
  decide({
    title: "Roll the run back",
    about: [named(run), told("Its effects are undone in reverse order, by the undo functions of the code. First you see the plan.")],
    fields: [
      fields.text({
        name: "to",
        label: "Back to the step",
        help: "That step stays done. The run is then held (paused); when resumed, it executes the later steps again. Left empty: the whole run is undone.",
        list: keys,
        mono: true,
      }),
      reason(),
    ],
    button: "Show the plan",
    send: async ({ to, reason }) => {
      const { preview: plan } = await get("run/preview-rollback", { id: run.run_id, to });
      return planned(context, plan, { to, reason: reason ?? "" });
    },
  });
}

/**
 * @param {Context} context
 * @param {RollbackPreview} plan
 * @param {Rollback} body
 */
function planned(context, plan, body) {
  const notes = [
    plan.effects.length ? null : "No effect has to be undone.",
    plan.to ? "Then the run is held (paused) until somebody resumes it." : null,
    ...plan.stopped.map((id) => `Run ${id}, which it started, has not ended: it is cancelled.`),
    ...plan.children.map((id) => `Run ${id}, which it started, is not rolled back with it.`),
    ...plan.forks.map((id) => `Run ${id} was forked from it and uses outcomes that are undone: it is not changed.`),
    plan.elsewhere ? `${plan.elsewhere}; rolled back in both stores, it is undone twice.` : null,
    plan.confirm ? "Some effects cannot be undone, or might be undone twice. Confirm only if you accept that." : null,
  ];
  return confirmation({
    title: plan.to ? `Roll back to ${plan.to}?` : "Roll the whole run back?",
    about: told(...notes),
    effects: plan.effects,
    button: plan.confirm ? "Roll back, and leave the rest" : "Roll back",
    send: () => sender(context, "run/rollback")({ ...body, confirm: plan.confirm }),
    conflict: conflicts(context),
  });
}

/** @param {Context} context */
function fork(context) {
  const { run } = context;
  const steps = (run.steps ?? []).filter((step) => !step.superseded);
  const last = steps.at(-1)?.key ?? "";
  const names = run.input && typeof run.input === "object" ? Object.keys(run.input) : [];
  decide({
    title: "Fork the run",
    about: [named(run), told("A new run that takes over the outcomes before one step, and executes the later steps itself. This run is not changed.")],
    fields: [
      fields.text({ name: "new_run_id", label: "Id of the new run", value: `${run.run_id}-fork`, required: true, mono: true }),
      fields.text({ name: "before", label: "First step to execute", value: last, list: steps.map((step) => step.key), required: true, mono: true }),
      fields.json({
        name: "input",
        label: "Changed input",
        help: names.length ? `Only the changed fields. The fields are: ${names.join(", ")}.` : "It has no input that can be changed.",
        object: true,
        rows: 3,
      }),
    ],
    button: "Show effects it may repeat",
    send: async (body) => {
      const { preview: plan } = await get("run/preview-fork", { id: run.run_id, before: body.before, new_run_id: body.new_run_id });
      return repeats(context, plan.effects, /** @type {Fork} */ (body));
    },
  });
}

/**
 * @param {Context} context
 * @param {Effect[]} effects
 * @param {Fork} body
 */
function repeats(context, effects, body) {
  const { run } = context;
  return confirmation({
    title: `Fork before ${body.before}?`,
    about: told(
      effects.length
        ? "The fork may execute these effects again, under new keys. The receiver treats them as new."
        : "No effect is executed again. The fork is queued for a worker; a block of a script continues when that script runs with the new id.",
    ),
    effects,
    button: effects.length ? "Fork, and repeat them" : "Fork",
    send: async () => {
      const made = await act("run/fork", { id: run.run_id }, { ...body, confirm: effects.length > 0 }, context.etag);
      done({ did: `run ${made.run_id} was forked from ${run.run_id}` });
      location.assign(`/run?id=${encodeURIComponent(made.run_id)}`);
      return null;
    },
    conflict: conflicts(context),
  });
}

// -- budget and signals -------------------------------------------------------------------------

/** @param {Context} context */
function setBudget(context) {
  const { budget, run_id: id } = context.run;
  if (budget === null) return;
  // A limit below the amount spent would hold the run again at once, so it is not offered.
  /**
   * @param {string} name
   * @param {string} label
   * @param {string} spent
   * @param {number | null} limit
   * @param {boolean} whole
   * @param {number} used
   */
  const of = (name, label, spent, limit, whole, used) => {
    if (limit === null) return null;
    const value = Math.max(limit, whole ? Math.ceil(used) : Math.ceil(used * 100) / 100);
    return fields.number({ name, label, help: `${spent} spent so far.`, value, whole, min: 0 });
  };
  decide({
    title: "Set the budget",
    about: [
      named(context.run),
      told("A limit is a total and includes the amount already spent. Runs held for the budget continue."),
      budget.root === id ? null : told(`The budget belongs to run ${budget.root}.`),
    ],
    fields: [
      of("usd", "Dollars", money(budget.spent_usd), budget.usd, false, budget.spent_usd),
      of("tokens", "Tokens", count(budget.spent_tokens, "token"), budget.tokens, true, budget.spent_tokens),
      of("steps", "Attempts of steps", count(budget.spent_steps, "attempt"), budget.steps, true, budget.spent_steps),
      of("wall", "Seconds since it began", length(budget.elapsed_s), budget.wall_s, false, budget.elapsed_s),
    ].filter((field) => field !== null),
    button: "Set the limits",
    send: (values) => {
      /** @type {Record<string, number | null>} */
      const was = { usd: budget.usd, tokens: budget.tokens, steps: budget.steps, wall: budget.wall_s };
      const changed = Object.entries(values).filter(([name, value]) => value !== null && value !== was[name]);
      return sender(context, "run/set-budget")(Object.fromEntries(changed));
    },
    conflict: conflicts(context),
  });
}

/** @param {Context} context */
function signal(context) {
  const { run } = context;
  const waits = /^signal (.+)$/.exec(run.waiting_for ?? "")?.[1] ?? "";
  // Created once: a second click, or a repeated request, sends the same signal.
  const signal_id = crypto.randomUUID();
  decide({
    title: "Send a signal",
    about: [named(run), told("It is kept until the run receives it.")],
    fields: [
      fields.text({ name: "name", label: "Name", value: waits, required: true, mono: true }),
      fields.json({ name: "value", label: "Value", help: 'As JSON, such as "go"; left empty it is null.', rows: 3 }),
    ],
    button: "Send",
    send: ({ name, value }) =>
      sender(context, "run/signal", `Signal ${name} is sent.`)({ name, value: value ?? null, signal_id }),
    conflict: conflicts(context),
  });
}
