// The section of runs that need a person: doubts, questions, held and failed runs, one line each.
// @ts-check

import { get } from "../lib/api.js";
import { ago, append, badge, el, runLink, unread } from "../lib/dom.js";
import { clipped, number, words } from "../lib/format.js";

/** @import { Pending, Runs, RunSummary } from "../lib/api-types.js" */
/** @typedef {object} Need
 *  @property {string} id
 *  @property {string} status
 *  @property {string} [reason]
 *  @property {string} [flow]
 *  @property {string} [at]
 *  @property {string} what
 *  @property {number} [more] */

const SHOWN = 8;
/** @type {Record<string, string | undefined>} */
const MEANINGS = {
  in_doubt: "An effect was started, and it is unknown whether it happened.",
  budget: "Its budget is used up. Set a higher one, or cancel the run.",
  diverged: "Its code no longer matches its journal.",
  drift: "A watched fact changed while the run was not executed.",
  quarantined: "Five processes executed it without recording an outcome.",
  corrupt: "Its records are damaged; nothing is executed on them.",
  paused: "Somebody paused it.",
};

/** Return the section, or null if no run needs a person, which is known only if everything could be
 *  read. */
export async function needs() {
  const asked = {
    "Questions, approvals and doubts": get("pending"),
    "Held runs": get("runs", { status: "held", limit: 1 }),
    "Failed runs": get("runs", { status: "failed", limit: SHOWN }),
  };
  const answers = await Promise.allSettled(Object.values(asked));
  const given = /** @type {any[]} */ (answers.map((one) => (one.status === "fulfilled" ? one.value : {})));
  const [pending, held, broken] = /** @type {[Partial<Pending>, Partial<Runs>, Partial<Runs>]} */ (given);
  const missing = Object.keys(asked)
    .map((what, at) => ({ what, error: /** @type {any} */ (answers[at]).reason }))
    .filter(({ error }) => error && error.status !== 401);
  const lines = gathered(pending, broken.runs ?? []);
  if (!lines.length && !missing.length) return null;
  const counts = held.counts ?? {};
  const section = el(
    "section",
    { class: "needs", "aria-labelledby": "needs-title" },
    el(
      "div",
      { class: "spread" },
      el("h2", { id: "needs-title" }, "Needs a person"),
      totals(counts, pending),
    ),
    missing.map(({ what, error }) => unread(what, error)),
    el("ul", null, lines.slice(0, SHOWN).map(line)),
  );
  section.dataset.state = JSON.stringify([lines, counts, missing.map(({ what }) => what)]);
  return section;
}

/** One line per cause, the most urgent first: one cause that holds twelve runs needs one decision.
 *  @param {Partial<Pending>} pending
 *  @param {RunSummary[]} broken
 *  @returns {Need[]} */
function gathered(pending, broken) {
  /** @type {Map<string, Need>} */
  const lines = new Map();
  const add = (/** @type {string} */ id, /** @type {Omit<Need, "id">} */ told) => lines.has(id) || lines.set(id, { id, ...told });
  const causes = pending.held ?? [];
  const others = new Map(causes.map(({ runs, total }) => [runs[0], total - 1]));
  for (const doubt of pending.doubts ?? []) {
    add(
      doubt.run_id,
      {
        status: "held",
        reason: "in_doubt",
        flow: doubt.flow,
        at: doubt.since,
        more: others.get(doubt.run_id) ?? 0,
        what: `Did ${doubt.step} happen? Its outcome is unknown.`,
      },
    );
  }
  for (const { run_id: id, error } of pending.troubles ?? []) {
    add(id, { status: "held", reason: "corrupt", what: `It may need a person, but cannot be read: ${error}` });
  }
  for (const { reason, runs, total, flow, since, what } of causes) {
    const told = total > 1 ? `One cause: ${what}.` : MEANINGS[reason] ?? words(reason);
    add(runs[0], { status: "held", reason, flow, at: since, more: total - 1, what: told });
  }
  for (const asks of pending.questions ?? []) {
    const isApproval = asks.kind === "approval";
    const what = isApproval ? `Asks to approve ${asks.effect ?? asks.name}.` : `Asks: ${asks.text}`;
    add(asks.run_id, { status: "waiting", reason: asks.kind, at: asks.asked_at, what });
  }
  for (const run of broken) {
    const where = run.failed_in ? `Failed in ${run.failed_in}.` : "Failed.";
    add(
      run.run_id,
      {
        status: "failed",
        flow: run.flow,
        at: run.updated_at,
        what: `${where} It can be resumed.`,
      },
    );
  }
  return [...lines.values()];
}

/**
 * @param {Record<string, number>} counts
 * @param {Partial<Pending>} pending
 */
function totals(counts, pending) {
  const waiting = (pending.questions ?? []).length + (pending.doubts ?? []).length;
  const links = [];
  if (waiting) links.push(el("a", { href: "/pending" }, `Pending: ${number(waiting)}`));
  for (const status of ["held", "failed"]) {
    if (counts[status]) links.push(el(
      "a",
      { href: `/?status=${status}` },
      `All ${status}: ${number(counts[status])}`,
    ));
  }
  return append(el("div", { class: "row" }), links);
}

/** @param {Need} need */
function line({ id, status, reason, flow, at, what, more = 0 }) {
  return el(
    "li",
    null,
    el("span", { class: "need-badge" }, badge(status, reason)),
    el(
      "span",
      { class: "need-run" },
      runLink(id),
      more ? ` and ${number(more)} more` : null,
      flow ? el("span", { class: "faint" }, ` ${flow}`) : null,
    ),
    el("span", { class: "need-what" }, clipped(what, 160)),
    at ? el("span", { class: "faint nowrap" }, ago(at)) : null,
  );
}
