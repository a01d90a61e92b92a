// What needs a person, first of all: doubts, questions, held and failed runs, one line each.

import { get } from "/static/api.js";
import { ago, append, badge, clipped, el, number, runLink, words } from "/static/dom.js";

const SHOWN = 8;
const MEANINGS = {
  in_doubt: "An effect was started, and nobody knows whether it happened.",
  budget: "Its budget is used up. Raise it, or cancel the run.",
  diverged: "Its code no longer fits what is recorded.",
  drift: "Something that it watches changed while nobody had it.",
  quarantined: "It was taken up five times and brought nothing new.",
  corrupt: "Its records are damaged; nothing is executed on them.",
  paused: "Somebody paused it.",
};

/** Return the section, or null if nothing needs a person. */
export async function needs() {
  const [inbox, held, broken] = await Promise.all([
    get("inbox"),
    get("runs", { status: "held", limit: SHOWN * 2 }),
    get("runs", { status: "failed", limit: SHOWN }),
  ]);
  const lines = gathered(inbox, held.runs ?? [], broken.runs ?? []);
  if (!lines.length) return null;
  const counts = held.counts ?? {};
  const section = el(
    "section",
    { class: "needs", "aria-labelledby": "needs-title" },
    el(
      "div",
      { class: "spread" },
      el("h2", { id: "needs-title" }, "Needs a person"),
      totals(counts, inbox),
    ),
    el("ul", null, lines.slice(0, SHOWN).map(line)),
  );
  section.dataset.state = JSON.stringify([lines, counts]);
  return section;
}

/** One line per run, the most pressing first. */
function gathered(inbox, held, broken) {
  const lines = new Map();
  const add = (id, told) => lines.has(id) || lines.set(id, { id, ...told });
  for (const doubt of inbox.doubts ?? []) {
    add(
      doubt.run_id,
      {
        status: "held",
        reason: "in_doubt",
        flow: doubt.flow,
        at: doubt.since,
        what: `Did ${doubt.step} happen? Its outcome is not known.`,
      },
    );
  }
  for (const run of held) {
    if (run.held_reason === "moved") continue;
    add(
      run.run_id,
      {
        status: "held",
        reason: run.held_reason,
        flow: run.flow,
        at: run.updated_at,
        what: MEANINGS[run.held_reason] ?? words(run.held_reason),
      },
    );
  }
  for (const asks of inbox.questions ?? []) {
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
        what: `${where} It can be taken up again.`,
      },
    );
  }
  return [...lines.values()];
}

function totals(counts, inbox) {
  const waiting = (inbox.questions ?? []).length + (inbox.doubts ?? []).length;
  const links = [];
  if (waiting) links.push(el("a", { href: "/inbox" }, `Inbox: ${number(waiting)}`));
  for (const status of ["held", "failed"]) {
    if (counts[status]) links.push(el(
      "a",
      { href: `/?status=${status}` },
      `All ${status}: ${number(counts[status])}`,
    ));
  }
  return append(el("div", { class: "row" }), links);
}

function line({ id, status, reason, flow, at, what }) {
  return el(
    "li",
    null,
    el("span", { class: "need-badge" }, badge(status, reason)),
    el(
      "span",
      { class: "need-run" },
      runLink(id),
      flow ? el("span", { class: "faint" }, ` ${flow}`) : null,
    ),
    el("span", { class: "need-what" }, clipped(what, 160)),
    el("span", { class: "faint nowrap" }, ago(at)),
  );
}
