// The trends of the fleet over time: latency, errors, throughput, cost, trace coverage, saturation.
// They are computed from the measures that every executing process writes into the store.
// @ts-check

import { get } from "../lib/api.js";
import { byId, clear, el, keep, say } from "../lib/dom.js";
import { count, length, money, ms, number } from "../lib/format.js";
import { plot } from "../lib/plots.js";
import { failed, onChange, reading, ready } from "../lib/shell.js";

/** @import { Series, Trends } from "../lib/api-types.js" */
/** @import { About, Curve } from "../lib/plots.js" */
/** @typedef {Omit<About, "series"> & { series: (Curve & { of: keyof Series })[], sum: (totals: Series) => string, more?: (series: Series, at: number) => string }} Trend */

const EVERY_MS = 15000;
/** @type {(value: number) => string} */
const percent = (value) => `${Number((value * 100).toFixed(value > 0 && value < 0.1 ? 1 : 0))} %`;
/** @type {(value: number) => string} */
const millis = (value) => length(value / 1000);
/** @type {(list: (number | null)[]) => number | null} */
const last = (list) => (list?.length ? list[0] : null);
/** @type {(value: number | null, format: (value: number) => string) => string} */
const known = (value, format) => (value === null || value === undefined ? "" : format(value));

/** The plots: the names of the series in the API, the style, and the title.
 *  @type {Trend[]} */
const TRENDS = [
  {
    title: "Step latency", means: "The duration of step attempts.", format: millis,
    series: [{ of: "step_p50_ms", name: "median", hue: "hue-1" }, { of: "step_p95_ms", name: "95 % are below", hue: "hue-2" }],
    sum: (totals) => known(last(totals.step_p95_ms), (value) => `95 % below ${millis(value)}`),
  },
  {
    title: "Run duration", means: "From start to completion, waits included.", format: length,
    series: [{ of: "run_p50_s", name: "median", hue: "hue-1" }, { of: "run_p95_s", name: "95 % are below", hue: "hue-2" }],
    sum: (totals) => known(last(totals.run_p95_s), (value) => `95 % below ${length(value)}`),
  },
  {
    title: "Error rate", means: "Attempts that ended in an error.", format: percent, top: 0.05,
    series: [{ of: "error_rate", name: "errors", hue: "hue-3", fill: true }],
    sum: (totals) => known(last(totals.error_rate), percent),
    more: (series, at) => `${number(series.errors[at])} of ${count(series.attempts[at], "attempt")}`,
  },
  {
    title: "Throughput", means: "Ended runs by status.", format: number, kind: "bar", top: 4,
    series: [
      { of: "runs_completed", name: "completed", hue: "hue-4" },
      { of: "runs_failed", name: "failed", hue: "hue-3" },
      { of: "runs_held", name: "held", hue: "hue-2" },
    ],
    sum: (totals) => `${count(last(totals.runs_completed) ?? 0, "run")} completed`,
    more: (series, at) => count(series.steps[at], "step"),
  },
  {
    title: "Cost", means: "The cost that steps reported.", format: money, kind: "bar",
    nothing: "No step reported a cost in this time.",
    series: [{ of: "cost_usd", name: "dollars", hue: "hue-1" }],
    sum: (totals) => `${money(last(totals.cost_usd) ?? 0)} · ${count(last(totals.tokens) ?? 0, "token")}`,
    more: (series, at) => count(series.tokens[at], "token"),
  },
  {
    title: "Trace coverage", means: "Attempts with a trace span.", format: percent, top: 1,
    series: [{ of: "traced", name: "traced", hue: "hue-1", fill: true }],
    sum: (totals) => known(last(totals.traced), percent),
  },
  {
    title: "Saturation", means: "The share of all workers' places in use.", format: percent, top: 1,
    nothing: "No worker was alive in this time.",
    series: [{ of: "saturation", name: "in use", hue: "hue-5", fill: true }],
    sum: (totals) => known(last(totals.saturation), percent),
  },
  {
    title: "Waiting in queues", means: "Runs that were ready and waited for a place.", format: number, top: 4,
    nothing: "No worker read the queues in this time.",
    series: [{ of: "waiting", name: "ready", hue: "hue-1", fill: true }],
    sum: () => "",
  },
];
const PLOTS = TRENDS.map((of) => ({ of, made: plot(of) }));

const ranges = [.../** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("[name=since]"))];
const flow = byId("flow", HTMLSelectElement);
const params = new URLSearchParams(location.search);
let asked = 0;
let askedMs = 0;

const look = () => reading(byId("plots"), "The trends", read);

async function read() {
  const turn = ++asked;
  askedMs = Date.now();
  const since = ranges.find((one) => one.checked)?.value ?? "24h";
  const answer = await get("trends", { since, flow: flow.value });
  if (turn === asked) show(answer.trends);
}

/** @param {Trends} trends */
function show(trends) {
  const { series, totals, bucket_s: bucketS } = trends;
  const start = ms(trends.start);
  const times = series.steps.map((_, at) => start + at * bucketS * 1000);
  const nothing = !totals.attempts[0] && totals.saturation[0] === null;
  byId("plots").hidden = nothing;
  byId("empty").hidden = !nothing;
  for (const { of, made } of PLOTS) {
    const { more } = of;
    made.show({
      times,
      bucketMs: bucketS * 1000,
      values: of.series.map((one) => series[one.of]),
      sum: of.sum(totals),
      more: more ? (at) => more(series, at) : null,
    });
  }
  flows(trends.flows);
  clear(byId("notes"), (trends.notes ?? []).map((note) => el("p", { class: "trouble-box" }, note)));
  const told = [`${count(totals.attempts[0] ?? 0, "attempt")}`, `${length(bucketS)} each`];
  told.unshift(count(trends.processes, "process", "processes"));
  say(byId("told"), told.join(" · "));
  say(byId("lost"), trends.lost ?? "");
}

/** @param {string[]} names */
function flows(names) {
  const all = [...new Set(["", ...names, flow.value])];
  const chosen = flow.value;
  keep(flow, all, (name) => name, (name) => el("option", { value: name }, name || "all flows"));
  flow.value = chosen;
}

function chosen() {
  const query = new URLSearchParams();
  const since = ranges.find((one) => one.checked)?.value;
  if (since && since !== "24h") query.set("since", since);
  if (flow.value) query.set("flow", flow.value);
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
  look();
}

byId("plots").append(...PLOTS.map(({ made }) => made.node));
for (const one of ranges) {
  one.checked = one.value === (params.get("since") ?? "24h");
  one.addEventListener("change", chosen);
}
flows([params.get("flow") ?? ""]);
flow.value = params.get("flow") ?? "";
flow.addEventListener("change", chosen);
const again = () => Date.now() - askedMs > EVERY_MS - 1000 && look();
ready.then(() => {
  onChange(again);
  setInterval(() => document.hidden || again(), EVERY_MS);
  return look();
}).catch(failed);
