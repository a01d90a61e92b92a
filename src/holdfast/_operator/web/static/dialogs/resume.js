// The dialog that resumes a run: the preview, and the decisions that the resume needs.
// @ts-check

import { get } from "../lib/api.js";
import { confirmation, conflicts, decide, named, sender, told } from "./decision.js";
import { el, unread } from "../lib/dom.js";
import { length, words } from "../lib/format.js";
import * as fields from "./fields.js";

/** @import { Change, ResumePreview, Resume, RunView } from "../lib/api-types.js" */
/** @import { Child } from "../lib/globals.js" */
/** @import { Context, Stage } from "./decision.js" */

/** @type {Record<string, string>} */
const MEANS = {
  failed: "It starts its next generation: the failed step is executed again; steps with an outcome are not.",
  paused: "It continues where it stopped. Steps with an outcome are not executed again.",
  budget: "It continues with the rest of its budget. If that is not enough, it is held again: set a higher budget instead.",
  diverged: "The code calls other steps than the journal has. Restore the old code, or accept the change.",
  drift: "A watched fact changed while the run was not executed.",
  quarantined: "Five processes executed it without recording an outcome: it may have killed them. First find out why.",
  corrupt: "Its stored data is damaged. A resume reads it again, and refuses damaged data again.",
  moved: "It was moved to another store and continues there. If you resume it here too, its effects may happen twice.",
  other: "It continues where it stopped.",
};

/** Open the dialog that resumes a run.
 *  @param {Context} context */
export async function resume(context) {
  const { run } = context;
  const would = get("run/preview-resume", { id: run.run_id }).then(({ preview }) => found(preview));
  const seen = await would.catch((error) => unread("The preview of the resume", error));
  /** @type {Resume} */
  let sent = {};
  decide({
    title: "Resume the run",
    about: [
      named(run),
      told(MEANS[run.status === "failed" ? "failed" : (run.held_reason ?? "other")] ?? MEANS.other),
      run.held_detail ? el("p", { class: "detail" }, run.held_detail) : null,
      seen,
    ],
    fields: asked(run),
    button: "Resume",
    send: (values) => sender(context, "run/resume")((sent = values)),
    conflict: (error) => conflicts(context, again(context, sent))(error),
  });
}

/** @param {RunView} run */
function asked(run) {
  if (run.held_reason === "drift") return [drift()];
  if (run.held_reason === "moved") {
    return [fields.tick({ name: "confirm", label: "Resume it here, although it was moved", required: true })];
  }
  if (run.held_reason !== "diverged") return [];
  return [
    fields.tick({
      name: "accept_change",
      label: "Continue with the current code",
      help: "Records are matched by step key; calls without a record are executed.",
      required: true,
    }),
    fields.tick({
      name: "confirm",
      label: "Also if it does not call an effect that happened",
      help: "Only if the text above asks for it: the code omits an effect, or calls a new one before it.",
    }),
  ];
}

function drift() {
  return fields.choice({
    name: "drift",
    label: "How should it continue?",
    options: [
      { value: "keep", label: "Keep", help: "the recorded results, although the fact changed" },
      { value: "redo", label: "Redo", help: "the affected steps, in a new generation" },
    ],
  });
}

/** The second confirmation, if effects would be executed again.
 *  @param {Context} context
 *  @param {Resume} body
 *  @returns {(effects: string[], error: any) => Stage} */
function again(context, body) {
  return (effects, error) =>
    confirmation({
      title: "Execute these again?",
      about: told(
        `${error.message.split("\n")[0].replace(/:$/, "")}.`,
        "They get new idempotency keys, so the receiver treats them as new.",
      ),
      effects,
      button: "Yes, resume and execute them",
      send: () => sender(context, "run/resume")({ ...body, confirm: true }),
      conflict: conflicts(context),
    });
}

/** The preview: changes since the run stopped, repeated steps, effects in doubt.
 *  @param {ResumePreview} preview */
function found(preview) {
  /** @type {[string, Child[]][]} */
  const parts = [
    ["Changes", preview.changes.map(changed)],
    ["Executed again, because no outcome is recorded", preview.redone.map((step) => el("code", null, step))],
    ["In doubt", preview.in_doubt.map((step) => el("code", null, step))],
  ];
  const title = preview.died ? "its process died" : `last entry ${words(preview.last)}`;
  return el(
    "section",
    { class: "resume-preview", "aria-label": "Preview of the resume" },
    el("p", { class: "faint" }, `${length(preview.gap_s)} without an entry (${title}).`),
    parts.filter(([, items]) => items.length).map(([name, items]) => [el("h3", null, name), el("ul", null, items.map((item) => el("li", null, item)))]),
  );
}

/** @param {Change} change */
function changed(change) {
  return [
    el("b", null, `${words(change.kind)} ${change.name}`),
    change.was && change.now ? [": was ", el("code", null, change.was), ", is ", el("code", null, change.now)] : null,
    change.effects.length ? `; a redo would execute ${change.effects.join(", ")} again` : null,
  ];
}
