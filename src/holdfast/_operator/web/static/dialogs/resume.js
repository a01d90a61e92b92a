// Resuming a run: what it would find if it went on now, and what has to be said first.
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
  failed: "It is taken up in its next generation: what failed is tried again, and nothing that has an outcome is executed again.",
  paused: "It goes on where it stopped. Nothing that has an outcome is executed again.",
  budget: "It goes on with what is left of its budget. If that is not enough, it is held again: set a higher budget instead.",
  diverged: "The code calls other steps than the journal has. Put the old code back, or accept the change.",
  drift: "Something outside changed while nobody executed it.",
  quarantined: "It was taken up five times without anything new: it may have killed its processes. Look why first.",
  corrupt: "Something stored of it is damaged. Resuming reads it again; what is damaged is refused again.",
  moved: "It was moved to another store and goes on there. Resumed here too, its effects may happen twice.",
  other: "It goes on where it stopped.",
};

/** Open the dialog that takes a run up again.
 *  @param {Context} context */
export async function resume(context) {
  const { run } = context;
  const would = get("run/preview-resume", { id: run.run_id }).then(({ preview }) => found(preview));
  const seen = await would.catch((error) => unread("What it would find if it went on now", error));
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
    return [fields.tick({ name: "confirm", label: "Go on here, although it was moved", required: true })];
  }
  if (run.held_reason !== "diverged") return [];
  return [
    fields.tick({
      name: "accept_change",
      label: "Go on with the code as it is now",
      help: "Records are matched by step key; calls without a record are executed.",
      required: true,
    }),
    fields.tick({
      name: "confirm",
      label: "Also where it does not call an effect that happened",
      help: "Only if what is said above asks for it: an effect is left out, or a new one comes before it.",
    }),
  ];
}

function drift() {
  return fields.choice({
    name: "drift",
    label: "What is to be done about it?",
    options: [
      { value: "keep", label: "Go on", help: "with the recorded results, although the world changed" },
      { value: "redo", label: "Redo", help: "what the change concerns, in a new generation" },
    ],
  });
}

/** The second word, if effects would be executed once more.
 *  @param {Context} context
 *  @param {Resume} body
 *  @returns {(effects: string[], error: any) => Stage} */
function again(context, body) {
  return (effects, error) =>
    confirmation({
      title: "Execute these again?",
      about: told(
        `${error.message.split("\n")[0].replace(/:$/, "")}.`,
        "They get new idempotency keys: the other side takes them for new.",
      ),
      effects,
      button: "Yes, resume and execute them",
      send: () => sender(context, "run/resume")({ ...body, confirm: true }),
      conflict: conflicts(context),
    });
}

/** What the run would find: what changed meanwhile, what is executed again, what is in doubt.
 *  @param {ResumePreview} preview */
function found(preview) {
  /** @type {[string, Child[]][]} */
  const parts = [
    ["Changed meanwhile", preview.changes.map(changed)],
    ["Executed again, since no outcome is recorded", preview.redone.map((step) => el("code", null, step))],
    ["In doubt", preview.in_doubt.map((step) => el("code", null, step))],
  ];
  const title = preview.died ? "its process died" : `last entry ${words(preview.last)}`;
  return el(
    "section",
    { class: "resume-preview", "aria-label": "What it would find" },
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
