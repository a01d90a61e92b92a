// The head of a run's page: identity, status, cost.
// @ts-check

import { ago, badge, clear, copyButton, el, keep, runLink, say, time } from "../lib/dom.js";
import { count, length, money, moment, number, words } from "../lib/format.js";
import { familyLinks } from "./explanation.js";

/** @import { BudgetView, Run, RunningStep, RunView } from "../lib/api-types.js" */
/** @import { Child } from "../lib/globals.js" */
/** @typedef {[name: string, value: Child, state?: string]} Fact */

const OVER = new Set(["completed", "failed", "cancelled", "rolled_back"]);
const CHILDREN = 12;
const COUNTED = 1000;  // The server's limit of the count.

/** Return `{node, show(answer), bar}`; `bar` contains the actions.
 *  @param {string} id */
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
    /** @param {Run} answer */
    show(answer) {
      const { run } = answer;
      const reason = run.abandoned ? "abandoned" : run.held_reason;
      const now = `${run.status}:${reason ?? ""}`;
      if (now !== last) clear(status, badge(run.status, reason));
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

/** @param {Fact} fact */
function factNode([name]) {
  return el("div", null, el("dt", null, name), el("dd", null));
}

/**
 * @param {HTMLElement} node
 * @param {Fact} fact
 */
function updateFact(node, [, value, state]) {
  const now = state ?? (value instanceof Node ? null : String(value));
  if (now !== null && node.shown === now) return;
  node.shown = now;
  clear(node.children[1], value);
}

/** The name, the content, and a key that changes with the content.
 *  @param {Run} answer
 *  @returns {Fact[]} */
function factsOf({ run, trace_id: trace }) {
  const { usage = {}, attempts = 0, degraded = 0, steps: done = 0 } = run.totals ?? {};
  const { called: steps = done, others = 0 } = run.step_counts ?? {};
  const over = OVER.has(run.status);
  /** @type {Fact[]} */
  const found = [["Flow", el("span", { class: "mono" }, run.flow), run.flow]];
  found.push(["Version", run.version || "–"]);
  if (run.generation > 1) found.push(["Generation", number(run.generation)]);
  if (run.stopping) {
    const { what, actor, at } = run.stopping;
    found.push(["Asked", el("span", null, `to be ${what}, as ${actor} asked `, ago(at)), at + what]);
  }
  if (run.owner) found.push([
    run.owner_died ? "Was executed by" : "Executed by",
    [el("span", { class: "mono" }, run.owner), run.owner_died ? ", which is dead" : null],
    `${run.owner} ${run.owner_died}`,
  ]);
  if (run.status === "waiting" && run.waiting_for) found.push(["Waits for", run.waiting_for]);
  else if (run.running?.length) found.push([
    "Running",
    run.running.map(runningStep),
    JSON.stringify(run.running),
  ]);
  else if (run.current_step && !over) found.push([
    "Last wrote",
    el("span", { class: "mono" }, run.current_step),
    run.current_step,
  ]);
  found.push([
    "Steps",
    `${number(done)} done` +
      (steps > done ? ` of ${number(steps)} called` : "") +
      (attempts > done ? `, in ${number(attempts)} attempts` : "") +
      (degraded ? `, ${number(degraded)} degraded` : "") +
      (others ? `; ${count(others, "other call")}` : ""),
  ]);
  found.push(...costs(usage, run.budget));
  found.push(["Started", time(run.created_at), run.created_at]);
  if (over) found.push(["Took", length((new Date(run.updated_at).getTime() - new Date(run.created_at).getTime()) / 1000)]);
  found.push([over ? "Ended" : "Changed", ago(run.updated_at), run.updated_at]);
  if (run.deadline) found.push([
    "Deadline",
    el("span", { title: moment(run.deadline) }, ago(run.deadline)),
    run.deadline,
  ]);
  for (const [name, link] of familyLinks(run)) found.push([name, link, link.textContent]);
  if (run.children?.length) found.push([
    "Children",
    children(run),
    JSON.stringify([run.children, run.children_by_status]),
  ]);
  if (trace) found.push(["Trace", el("span", { class: "mono" }, trace), trace]);
  return found;
}

/** A running step: its key, attempt and start.
 *  @param {RunningStep} step */
function runningStep({ key, attempt, since }) {
  return el(
    "div",
    { class: "running-step" },
    el("span", { class: "mono" }, key),
    attempt > 1 ? `, attempt ${number(attempt)}` : "",
    ", since ",
    ago(since),
  );
}

/**
 * @param {Record<string, any>} usage
 * @param {BudgetView | null} budget
 * @returns {Fact[]}
 */
function costs(usage, budget) {
  const tokens = (usage.input_tokens ?? 0) + (usage.output_tokens ?? 0);
  /** @type {Fact[]} */
  const found = [];
  if (usage.cost !== undefined) found.push(["Cost", money(usage.cost)]);
  if (tokens) found.push([
    "Tokens",
    `${number(usage.input_tokens ?? 0)} in, ${number(usage.output_tokens ?? 0)} out`,
  ]);
  if (budget) found.push(["Budget", budgetView(budget), JSON.stringify(budget)]);
  return found;
}

/** @param {BudgetView} budget */
function budgetView(budget) {
  /** @type {[name: string, spent: number, limit: number | null, told: (value: number) => string, unit: string][]} */
  const limits = [
    ["usd", budget.spent_usd, budget.usd, money, ""],
    ["tokens", budget.spent_tokens, budget.tokens, number, " tokens"],
    ["attempts", budget.spent_steps, budget.steps, number, " attempts of steps"],
    ["time", budget.elapsed_s, budget.wall_s, length, ""],
  ];
  /**
   * @param {number} spent
   * @param {number} limit
   * @param {string} name
   */
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
  return limits.map(([name, spent, limit, told, unit]) => limit === null ? null : el(
    "div",
    { class: "budget" },
    `${told(spent)} of ${told(limit)}${unit} `,
    meter(spent, limit, name),
  ));
}

/** @param {RunView} run */
function children({ run_id: id, children: found, children_by_status: counts = {} }) {
  const list = found.slice(0, CHILDREN).map((child) => el(
    "li",
    null,
    badge(child.status, child.owner_died ? "abandoned" : child.held_reason),
    " ",
    runLink(child.run_id),
  ));
  const total = Object.values(counts).reduce((sum, one) => sum + one, 0);
  const most = total >= COUNTED ? " or more" : "";
  const how = Object.entries(counts).map(([status, many]) => `${number(many)} ${words(status)}`);
  const told = `${number(total)}${most}: ${how.join(", ")}`;
  if (total > list.length) list.push(el(
    "li",
    null,
    el(
      "a",
      { href: `/?parent=${encodeURIComponent(id)}` },
      `and ${number(total - list.length)}${most} more`,
    ),
  ));
  return [el("div", { class: "children-told" }, told), el("ul", { class: "children" }, list)];
}
