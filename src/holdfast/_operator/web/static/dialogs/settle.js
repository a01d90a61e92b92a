// The dialog that settles an effect in doubt: the known facts, and the three outcomes.
// @ts-check

import { act, get } from "../lib/api.js";
import { confirmation, decide, done, exactArgs, tooLate } from "./decision.js";
import { ago, copyButton, el, runLink } from "../lib/dom.js";
import * as fields from "./fields.js";

/** @import { DoubtView, RunView, Settle } from "../lib/api-types.js" */
/** @import { Stage } from "./decision.js" */
/** @typedef {{ changed: () => any, run?: RunView | null }} Context */

/** The current doubts of one run.
 *  @param {string} runId */
export async function doubtsOf(runId) {
  return (await get("run", { id: runId })).doubts ?? [];
}

/** The facts of a doubt: effect, key, age, policy.
 *  @param {DoubtView} doubt */
function known(doubt) {
  const facts = [
    ["Step", el("code", null, doubt.step)],
    ["Key", doubt.key ? [el("code", { class: "key" }, doubt.key), copyButton(doubt.key, "Copy the key")] : null],
    ["Started", doubt.since ? ago(doubt.since) : null],
    ["Declared", doubt.policy ?? null],
    ["Digest", doubt.digest ? el("code", { class: "digest" }, doubt.digest) : null],
  ].filter(([, value]) => value !== null);
  return el("dl", { class: "facts" }, facts.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)]));
}

/** Open the dialog that settles a doubt; if there are several, first choose one.
 *  @param {DoubtView[]} doubts
 *  @param {Context} context */
export function settle(doubts, { changed, run = null }) {
  if (!doubts.length) {
    return decide({
      title: "Nothing to settle",
      about: [el("p", null, "This run has no effect in doubt. It was settled already, or the run waits for a key of another run, which its explanation names.")],
      button: "Reload",
      send: async () => void (await changed()),
    });
  }
  const context = { changed, run };
  if (doubts.length === 1) return decide(stageOf(doubts[0], context));
  return decide({
    title: "Which effect?",
    about: [el("p", null, "Several effects are in doubt. Each is settled separately.")],
    fields: [
      fields.choice({
        name: "doubt",
        label: "In doubt",
        options: doubts.map((doubt) => ({ value: doubt, label: doubt.step, help: doubt.verdict })),
      }),
    ],
    button: "Next",
    send: async ({ doubt }) => stageOf(doubt, context),
  });
}

/**
 * @param {DoubtView} doubt
 * @param {Context} context
 * @returns {Stage}
 */
function stageOf(doubt, context) {
  const result = fields.json({
    name: "result",
    label: "Its result",
    help: 'The return value of the effect, as JSON. Left empty: null.',
    rows: 3,
  });
  const reason = fields.text({ name: "reason", label: "Reason", help: "The flow receives it as the error of the step." });
  const show = (/** @type {string | null} */ outcome) => {
    result.node.hidden = outcome !== "done";
    reason.node.hidden = outcome !== "failed";
  };
  const outcome = fields.choice({ name: "outcome", label: "Did it happen?", options: WAYS, onchange: show });
  show(null);
  return {
    title: `Settle ${doubt.step}`,
    wide: true,
    about: [
      el("p", null, "Run ", runLink(doubt.run_id), doubt.flow ? ` of flow ${doubt.flow}` : ""),
      doubt.verdict ? el("p", { class: "verdict" }, doubt.verdict) : null,
      known(doubt),
      el("h3", null, "Stored arguments"),
      exactArgs(doubt),
      el("p", { class: "faint" }, "Only the receiver knows whether it happened: first search there for the key."),
    ],
    fields: [outcome, result, reason],
    button: "Settle",
    send: (values) => chosen(doubt, context, values),
    conflict: late(doubt, context),
  };
}

const WAYS = [
  { value: "done", label: "It happened", help: "the run continues with the result that you give" },
  { value: "not_done", label: "It did not happen", help: "it is executed, under the same key" },
  { value: "failed", label: "Give up", help: "the flow receives StepFailed; whether it happened stays unknown" },
];

/**
 * @param {DoubtView} doubt
 * @param {Context} context
 * @param {Record<string, any>} values
 */
async function chosen(doubt, context, { outcome, result, reason }) {
  if (outcome !== "not_done") {
    const body = outcome === "done" ? { outcome, result: result ?? null } : { outcome, reason: reason ?? "" };
    return post(doubt, context, body);
  }
  return confirmation({
    title: "Execute it?",
    about: [
      el("p", null, "If it did happen, it will happen twice. This effect will be executed:"),
      exactArgs(doubt),
    ],
    effects: [{ step: doubt.step, means: doubt.key ? `under the key ${doubt.key}` : "" }],
    button: "It did not happen: execute it",
    send: () => post(doubt, context, { outcome, confirm: true }),
    conflict: late(doubt, context),
  });
}

/**
 * @param {DoubtView} doubt
 * @param {Context} context
 * @param {Omit<Settle, "step">} body
 */
async function post(doubt, { changed }, body) {
  done(await act("run/settle", { id: doubt.run_id }, { step: doubt.step, ...body }, doubt.etag));
  await changed();
  return null;
}

/**
 * @param {DoubtView} doubt
 * @param {Context} context
 */
function late(doubt, { run, changed }) {
  return (/** @type {any} */ error) => tooLate(error, run ?? { ...doubt, status: "held", held_reason: "in_doubt" }, changed);
}

/** A doubt as a card of the page Pending.
 *  @param {DoubtView} doubt
 *  @param {{ changed: () => any, mayAct: boolean }} options */
export function doubtCard(doubt, { changed, mayAct }) {
  const button = el("button", { type: "button", class: "primary" }, "Settle…");
  button.addEventListener("click", () => settle([doubt], { changed }));
  return el(
    "article",
    { class: "card is-doubt", "aria-label": `In doubt: ${doubt.step} of run ${doubt.run_id}` },
    el(
      "header",
      null,
      el("span", { class: "kind" }, "In doubt"),
      runLink(doubt.run_id),
      el("span", { class: "faint" }, doubt.flow ?? ""),
    ),
    el("p", { class: "asks" }, doubt.verdict ?? `${doubt.step} may or may not have happened.`),
    known(doubt),
    exactArgs(doubt, `Stored arguments of ${doubt.step}`),
    el("footer", null, mayAct ? button : el("span", { class: "faint" }, "Read only (viewer).")),
  );
}
