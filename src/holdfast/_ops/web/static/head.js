// The head of a run's page: who it is, where it stands, what it has cost.

import {
  ago,
  badge,
  clear,
  copyButton,
  el,
  keep,
  length,
  money,
  moment,
  number,
  runLink,
  say,
  time,
} from "/static/dom.js";
import { familyLinks } from "/static/explanation.js";

const OVER = new Set(["completed", "failed", "cancelled", "rolled_back"]);
const CHILDREN = 12;

/** Return `{node, show(answer), bar}`; `bar` is the place for actions. */
export function headView(id) {
  const status = el("span", null);
  const bar = el("div", null);
  const facts = el("dl", { class: "run-facts" });
  const tags = el("div", { class: "tags" });
  const title = el("h1", { class: "run-title" }, el("span", { class: "run-id", translate: "no" }, id));
  const node = el(
    "header",
    { class: "run-head" },
    el(
      "div",
      { class: "spread" },
      el("div", { class: "row" }, title, copyButton(id, "Copy the run id"), status),
      bar,
    ),
    tags,
    facts,
  );
  let last = "";
  return {
    node,
    bar,
    show(answer) {
      const { run } = answer;
      const now = `${run.status}:${run.held_reason ?? ""}`;
      if (now !== last) clear(status, badge(run.status, run.held_reason));
      last = now;
      keep(
        tags,
        Object.entries(run.tags ?? {}),
        ([name]) => name,
        () => el("span", { class: "tag" }),
        (one, [name, value]) => say(one, `${name}=${value}`),
      );
      keep(facts, factsOf(answer), ([name]) => name, factNode, updateFact);
    },
  };
}

function factNode([name]) {
  return el("div", null, el("dt", null, name), el("dd", null));
}

function updateFact(node, [, value, state]) {
  const now = state ?? (value instanceof Node ? null : String(value));
  if (now !== null && node.shown === now) return;
  node.shown = now;
  clear(node.lastElementChild, value);
}

/** Name, what is shown, and what tells whether it changed. */
function factsOf({ run, trace_id: trace, steps_total: steps }) {
  const { usage = {}, attempts = 0, degraded = 0, steps: done = 0 } = run.totals ?? {};
  const over = OVER.has(run.status);
  const found = [["Flow", el("span", { class: "mono" }, run.flow), run.flow]];
  found.push(["Version", run.version || "–"]);
  if (run.generation > 1) found.push(["Generation", number(run.generation)]);
  if (run.stopping) {
    const { what, actor, at } = run.stopping;
    found.push(["Asked", el("span", null, `to be ${what}, as ${actor} asked `, ago(at)), at + what]);
  }
  if (run.owner) found.push(["Executed by", el("span", { class: "mono" }, run.owner), run.owner]);
  if (run.status === "waiting" && run.waiting_for) found.push(["Waits for", run.waiting_for]);
  else if (run.current_step && !over) found.push([
    "At",
    el("span", { class: "mono" }, run.current_step),
    run.current_step,
  ]);
  found.push([
    "Steps",
    `${number(done)} done` +
      (steps > done ? ` of ${number(steps)} called` : "") +
      (attempts > done ? `, in ${number(attempts)} attempts` : "") +
      (degraded ? `, ${number(degraded)} degraded` : ""),
  ]);
  found.push(...costs(usage, run.budget));
  found.push(["Started", time(run.created_at), run.created_at]);
  if (over) found.push(["Took", length((new Date(run.updated_at) - new Date(run.created_at)) / 1000)]);
  found.push([over ? "Ended" : "Changed", ago(run.updated_at), run.updated_at]);
  if (run.deadline) found.push([
    "Deadline",
    el("span", { title: moment(run.deadline) }, ago(run.deadline)),
    run.deadline,
  ]);
  for (const [name, link] of familyLinks(run)) found.push([name, link, link.textContent]);
  if (run.children?.length) found.push([
    "Children",
    children(run.children),
    JSON.stringify(run.children),
  ]);
  if (trace) found.push(["Trace", el("span", { class: "mono" }, trace), trace]);
  return found;
}

function costs(usage, budget) {
  const tokens = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
  const found = [];
  if (usage.cost !== undefined) found.push(["Cost", money(usage.cost)]);
  if (tokens) found.push([
    "Tokens",
    `${number(usage.input_tokens ?? 0)} in, ${number(usage.output_tokens ?? 0)} out`,
  ]);
  if (budget) found.push(["Budget", budgetView(budget), JSON.stringify(budget)]);
  return found;
}

function budgetView(budget) {
  const limits = [
    ["usd", budget.spent_usd, budget.usd, money],
    ["tokens", budget.spent_tokens, budget.tokens, number, " tokens"],
    ["attempts", budget.spent_steps, budget.steps, number, " attempts of steps"],
    ["time", budget.elapsed_s, budget.wall_s, length],
  ].filter(([, , limit]) => limit !== null && limit !== undefined);
  const meter = (spent, limit, name) =>
    el(
      "meter",
      {
        min: 0,
        max: limit || 1,
        value: Math.min(spent, limit || 1),
        low: limit * 0.8,
        high: limit * 0.98,
        optimum: 0,
        "aria-label": `Share of the budget in ${name}`,
      },
    );
  return limits.map(([name, spent, limit, told, unit = ""]) => el(
    "div",
    { class: "budget" },
    `${told(spent)} of ${told(limit)}${unit} `,
    meter(spent, limit, name),
  ));
}

function children(found) {
  const list = found.slice(0, CHILDREN).map((child) => el(
    "li",
    null,
    badge(child.status, child.held_reason),
    " ",
    runLink(child.run_id),
  ));
  if (found.length > CHILDREN) list.push(el(
    "li",
    { class: "faint" },
    `and ${number(found.length - CHILDREN)} more`,
  ));
  return el("ul", { class: "children" }, list);
}
