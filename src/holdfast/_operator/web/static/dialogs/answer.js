// Questions and approvals of runs. A question has a field for its type of answer; an approval shows
// the exact stored arguments and sends their digest.
// @ts-check

import { ApiError, act, get } from "../lib/api.js";
import { decide, done, exact, exactArgs, tooLate } from "./decision.js";
import { ago, copyButton, el, lines, runLink, unread } from "../lib/dom.js";
import { length } from "../lib/format.js";
import * as fields from "./fields.js";
import { written } from "../lib/numbers.js";

/** @import { QuestionView } from "../lib/api-types.js" */

/** The key of a question: a question that is asked again has another number.
 *  @param {QuestionView} question */
export function keyOf(question) {
  return JSON.stringify([question.kind, question.run_id, question.name, question.number, question.digest]);
}

/** A question or an approval as a card.
 *  @param {QuestionView} question
 *  @param {{ changed?: () => any, mayAct?: boolean }} [options] */
export function questionCard(question, { changed = () => location.reload(), mayAct = true } = {}) {
  const isApproval = question.kind === "approval";
  const card = el(
    "article",
    { class: `card is-${question.kind}`, "aria-label": `${isApproval ? "Approval" : "Question"} of run ${question.run_id}: ${question.text}` },
    head(question, isApproval),
    el("p", { class: "asks" }, lines(question.text)),
    refusals(question),
    isApproval ? sealed(question) : null,
  );
  if (!mayAct) card.append(el("footer", null, el("span", { class: "faint" }, "Read only (viewer).")));
  else card.append(isApproval ? approving(question, changed) : answering(question, changed));
  return card;
}

/**
 * @param {QuestionView} question
 * @param {boolean} isApproval
 */
function head(question, isApproval) {
  return el(
    "header",
    null,
    el("span", { class: "kind" }, isApproval ? "Approval" : "Question"),
    runLink(question.run_id),
    el("code", { class: "faint" }, question.name),
    question.to ? el("span", { class: "tag" }, `to ${question.to}`) : null,
    el("span", { class: "when" }, ago(question.asked_at), question.until ? [" · continues without an answer ", ago(question.until)] : null),
  );
}

/** @param {QuestionView} question */
function refusals(question) {
  if (!question.refused?.length) return null;
  return el("ul", { class: "refused" }, question.refused.map((one) => el("li", null, `Asked again: ${one}`)));
}

/** @param {QuestionView} question */
function sealed(question) {
  return [
    el(
      "dl",
      { class: "facts" },
      el("dt", null, "Effect"),
      el("dd", null, el("code", null, question.effect)),
      el("dt", null, "Digest"),
      el("dd", null, el("code", { class: "digest" }, question.digest), copyButton(question.digest ?? "", "Copy the digest")),
      el("dt", null, "Holds"),
      el("dd", null, question.holds_s === null ? "until it is used, once" : `${length(question.holds_s)}, once`),
    ),
    exactArgs(question, `Stored arguments of ${question.effect}`),
  ];
}

// -- answering ----------------------------------------------------------------------------------

/**
 * @param {QuestionView} question
 * @param {() => any} changed
 */
function answering(question, changed) {
  const field = fields.answer(question, "Answer");
  const trouble = el("div", { class: "trouble", role: "alert" });
  const send = el("button", { class: "primary", type: "submit" }, "Answer");
  const form = el(
    "form",
    { novalidate: true },
    field.node,
    schemaOf(question),
    trouble,
    el("footer", null, send, rejectButton(question, changed)),
  );
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    trouble.replaceChildren();
    if (send.disabled) return;
    try {
      const answer = field.read();
      send.disabled = true;
      await act("run/answer", { id: question.run_id }, { name: question.name, expected_number: question.number, value: answer });
      done({ did: `${question.name} of run ${question.run_id} is answered` });
      await changed();
    } catch (error) {
      if (error instanceof fields.Misfit) {
        error.field.wrong(error.message);
        error.field.control.focus();
      } else if (error instanceof ApiError && error.status === 409) decide(await late(question, changed)(error));
      else trouble.replaceChildren(el("p", null, lines(/** @type {Error} */ (error).message)));
    } finally {
      send.disabled = false;
    }
  });
  return form;
}

/** @param {QuestionView} question */
function schemaOf(question) {
  const kind = question.schema?.type;
  if (!question.schema || question.choices || ["string", "integer", "number", "boolean"].includes(kind)) return null;
  return el("details", null, el("summary", null, "Schema of the answer"), exact(written(question.schema), "Schema of the answer"));
}

/**
 * @param {QuestionView} question
 * @param {() => any} changed
 */
function rejectButton(question, changed) {
  const button = el("button", { type: "button", class: "danger" }, "Reject…");
  button.addEventListener("click", () => reject(question, changed));
  return button;
}

/**
 * @param {QuestionView} question
 * @param {() => any} changed
 */
function reject(question, changed) {
  decide({
    title: question.kind === "approval" ? `Reject ${question.effect}?` : "Reject the question?",
    about: [
      el("p", null, "Run ", runLink(question.run_id), " receives a Rejected error at this point, and continues with it."),
      question.kind === "approval" ? exactArgs(question) : el("p", { class: "asks" }, lines(question.text)),
    ],
    fields: [fields.text({ name: "reason", label: "Reason", help: "The flow receives it; optional." })],
    button: "Reject",
    danger: true,
    send: async ({ reason }) => {
      const body = { name: question.name, expected_number: question.number, reason: reason ?? "" };
      await act("run/reject", { id: question.run_id }, body);
      done({ did: `${question.name} of run ${question.run_id} is rejected` });
      await changed();
      return null;
    },
    conflict: late(question, changed),
  });
}

// -- approving ----------------------------------------------------------------------------------

/**
 * @param {QuestionView} question
 * @param {() => any} changed
 */
function approving(question, changed) {
  const button = el("button", { type: "button", class: "primary" }, "Approve…");
  button.addEventListener("click", () => approve(question, changed));
  return el("footer", null, button, rejectButton(question, changed));
}

/**
 * @param {QuestionView} question
 * @param {() => any} changed
 */
function approve(question, changed) {
  decide({
    title: `Approve ${question.effect}?`,
    wide: true,
    about: [
      el("p", null, "Run ", runLink(question.run_id), " executes it once, with exactly these arguments:"),
      exactArgs(question),
      el("p", null, "Digest ", el("code", { class: "digest" }, question.digest)),
    ],
    button: "Approve these arguments",
    send: async () => {
      const body = { step: question.name, expected_number: question.number, digest: question.digest ?? "" };
      await act("run/approve", { id: question.run_id }, body);
      done({ did: `${question.effect} of run ${question.run_id} is approved` });
      await changed();
      return null;
    },
    conflict: late(question, changed),
  });
}

/** Somebody answered first, or the run now asks something else: show both.
 *  @param {QuestionView} question
 *  @param {() => any} changed */
function late(question, changed) {
  return async (/** @type {any} */ error) => {
    const stage = await tooLate(error, null, changed);
    if (question.kind !== "approval") return stage;
    const now = await asksNow(question).catch((error) => {
      stage.about.push(unread("Its current question", error));
    });
    if (!now || now.digest === question.digest) return stage;
    stage.title = "Not approved: the arguments changed";
    stage.wide = true;
    stage.about = [
      el("p", null, "The run no longer asks the question that you saw. Nothing was approved."),
      el(
        "div",
        { class: "beside" },
        el("section", null, el("h3", null, "You saw"), exactArgs(question, "Arguments that you saw"), el("code", { class: "digest" }, question.digest)),
        el("section", null, el("h3", null, "It asks now"), exactArgs(now, "Arguments now"), el("code", { class: "digest" }, now.digest)),
      ),
    ];
    return stage;
  };
}

/** @param {QuestionView} question */
async function asksNow(question) {
  const { questions = [] } = await get("pending");
  return questions.find((one) => one.run_id === question.run_id && one.name === question.name) ?? null;
}
