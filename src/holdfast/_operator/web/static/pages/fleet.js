// The fleet: workers, queues with their runs and limits, and schedules.
// @ts-check

import { act, get } from "../lib/api.js";
import { decide, done } from "../dialogs/decision.js";
import { ago, badge, byId, clear, el, inside, keep, runLink, say, svg, time, unread } from "../lib/dom.js";
import { count, length, number } from "../lib/format.js";
import * as fields from "../dialogs/fields.js";
import { sourceOf, written } from "../lib/numbers.js";
import { failed, onChange, reading, ready } from "../lib/shell.js";
import { preview } from "../lib/tree.js";

/** @import { AuditView, QueueView, ScheduleView, WorkerView } from "../lib/api-types.js" */
/** @import { Child } from "../lib/globals.js" */
/** @typedef {{ content: Child, kind?: string | null }} Cell */
/** @typedef {[name: string, value: string, more: string]} Fact */

const EVERY_MS = 3000;
const CHANGES = 20;
const METER_WIDTH = 92;
const DAMAGED = { type: "Corrupt", message: "its stored data is damaged; run holdfast store verify." };
let role = "viewer";

const look = () => reading(byId("numbers"), "The fleet", read);
const lookBack = () => reading(byId("audit"), "The log of changes", readBack);

async function read() {
  const { workers, queues, schedules, troubles = [] } = await get("fleet");
  byId("troubles").hidden = troubles.length === 0;
  keep(byId("troubles"), troubles, (one) => one, (one) => el("li", null, one));
  summary(workers, queues, schedules);
  table("workers", workers, (one) => `${one.name} ${one.pid} ${one.host}`, workerCells);
  table("queues", queues, (one) => one.name, queueCells);
  table("schedules", schedules, (one) => one.name, scheduleCells);
}

/** The log of changes, which viewers do not see. */
async function readBack() {
  if (role === "viewer") return;
  const { audit } = await get("audit", { limit: CHANGES });
  byId("audit").hidden = false;
  table("audit", audit, (one) => written(one), auditCells);
}

/** @param {AuditView} change */
function auditCells({ at, actor, what, did, detail }) {
  const told = Object.keys(detail).map((name) => `${name}: ${preview(detail[name], 60, sourceOf(detail, name))}`);
  return [time(at), el("code", null, what), did, actor, told.join(", ") || null];
}

/** Fill a table; a row is kept while its item exists, so that focus stays. Null means unread.
 *  @template I
 *  @param {string} id
 *  @param {I[] | null} found
 *  @param {(item: I) => string} keyOf
 *  @param {(item: I) => (Child | Cell)[]} cells */
function table(id, found, keyOf, cells) {
  const section = byId(id);
  const items = found ?? [];
  const body = inside(section, "tbody");
  const names = [...section.querySelectorAll("thead th")].map((one) => one.textContent);
  keep(body, items, keyOf, () => el("tr"), (row, item) => {
    const told = JSON.stringify([item, role]);
    if (row.told === told && !row.querySelector("[data-ago]")) return;
    const held = row.contains(document.activeElement) ? document.activeElement?.textContent : null;
    row.told = told;
    clear(row, cells(item).map((cell, at) => framed(cell, names[at], at)));
    if (held) [...row.querySelectorAll("button")].find((one) => one.textContent === held)?.focus();
  });
  inside(section, ".table").hidden = items.length === 0;
  inside(section, ".empty").hidden = items.length > 0 || found === null;
  section.querySelector(".unread")?.remove();
  if (found === null) section.append(unread(inside(section, "h2").textContent, DAMAGED));
}

/**
 * @param {any} cell
 * @param {string} label
 * @param {number} at
 */
function framed(cell, label, at) {
  const { content, kind = null } = cell?.content === undefined ? { content: cell } : cell;
  return el(at === 0 ? "th" : "td", { class: at === 0 ? "card-title" : kind, "data-label": label, scope: at === 0 ? "row" : null }, content ?? "–");
}

/** @type {(content: Child) => Cell} */
const wide = (content) => ({ content, kind: "where" });
/**
 * @param {number} value
 * @param {string} kind
 */
const numeric = (value, kind = "") => ({ content: number(value), kind: `num ${kind}`.trim() });

// -- the summary --------------------------------------------------------------------------------

/**
 * @param {WorkerView[] | null} workers
 * @param {QueueView[] | null} queues
 * @param {ScheduleView[] | null} schedules
 */
function summary(workers, queues, schedules) {
  const facts = [...aboutWorkers(workers), ...aboutQueues(queues)];
  clear(
    byId("numbers"),
    facts.map(([name, value, more]) =>
      el("div", null, el("dt", null, name), el("dd", null, value, more ? [" ", el("small", null, more)] : null)),
    ),
  );
  const told = (/** @type {any[] | null} */ found, /** @type {string} */ one) => (found === null ? `${one}s not known` : count(found.length, one));
  say(byId("told"), [told(workers, "worker"), told(queues, "queue"), told(schedules, "schedule")].join(" · "));
}

/**
 * @param {WorkerView[] | null} workers
 * @returns {Fact[]}
 */
function aboutWorkers(workers) {
  if (workers === null) return [["Workers", "?", "not known"], ["Places in use", "?", "not known"]];
  const places = workers.reduce((all, one) => all + one.concurrency, 0);
  const working = workers.reduce((all, one) => all + one.working, 0);
  return [
    ["Workers", number(workers.length), workers.some((one) => one.draining) ? "some are draining" : ""],
    ["Places in use", places ? `${number(working)} of ${number(places)}` : "–", places ? `${Math.round((100 * working) / places)} %` : "no worker"],
  ];
}

/**
 * @param {QueueView[] | null} queues
 * @returns {Fact[]}
 */
function aboutQueues(queues) {
  const names = ["Ready", "Abandoned", "Not due", "Held", "Failed"];
  if (queues === null) return names.map((name) => [name, "?", "not known"]);
  /** @param {"ready" | "abandoned" | "delayed" | "held" | "quarantined" | "failed"} name */
  const sum = (name) => queues.reduce((all, one) => all + one[name], 0);
  const oldest = queues.map((one) => one.oldest_s).filter((value) => value !== null);
  return [
    ["Ready", number(sum("ready")), oldest.length ? `oldest for ${length(Math.max(...oldest))}` : ""],
    ["Abandoned", number(sum("abandoned")), sum("abandoned") ? "their process died; a worker will continue them" : ""],
    ["Not due", number(sum("delayed")), "wait for an answer, a message or a time"],
    ["Held", number(sum("held")), sum("quarantined") ? `${number(sum("quarantined"))} quarantined` : "need a person"],
    ["Failed", number(sum("failed")), ""],
  ];
}

// -- rows ---------------------------------------------------------------------------------------

/** @param {WorkerView} worker */
function workerCells(worker) {
  const flows = Object.entries(worker.flows).map(([flow, versions]) =>
    el("span", { class: "tag" }, versions.join("") ? `${flow} ${versions.filter(Boolean).join(", ")}` : flow),
  );
  return [
    el("code", null, worker.name),
    workerState(worker),
    wide(meter(worker.saturation, `${number(worker.working)} of ${number(worker.concurrency)}`, "Places in use")),
    worker.queues === null ? "all" : worker.queues.join(", "),
    wide(el("div", { class: "flows" }, flows)),
    wide(el("span", { class: "nowrap" }, `${worker.host} · ${worker.pid}`)),
  ];
}

/** The state of a worker, with the reason if it takes no runs although it has free places.
 *  @param {WorkerView} worker */
function workerState(worker) {
  if (worker.unread) return el("span", { class: "wants" }, `cannot be read: ${worker.unread}`);
  if (worker.draining) return badge("draining");
  const state = badge(worker.working ? "running" : "idle");
  if (worker.alone) {
    const only = ["executes only ", runLink(worker.alone.run_id), ` now, because ${worker.alone.why}`];
    return wide([state, " ", el("span", { class: "faint" }, only)]);
  }
  if (!worker.emptying) return state;
  const why = "takes no runs until it is empty: then it executes one run alone";
  return wide([state, " ", el("span", { class: "faint" }, why)]);
}

/** @param {QueueView} queue */
function heldCell(queue) {
  if (!queue.quarantined) return numeric(queue.held, queue.held ? "wants" : "");
  return { content: `${number(queue.held)}, ${number(queue.quarantined)} quarantined`, kind: "num wants" };
}

/** The running runs; a run whose process died is counted separately, and waits for a worker.
 *  @param {QueueView} queue */
function runningCell(queue) {
  if (!queue.abandoned) return numeric(queue.running);
  return { content: `${number(queue.running)}, ${number(queue.abandoned)} abandoned`, kind: "num wants" };
}

/** @param {QueueView} queue */
function queueCells(queue) {
  const own = queue.saturation;
  return [
    [el("code", null, queue.name), queue.paused ? [" ", badge("held", "paused")] : null],
    numeric(queue.ready, queue.ready && !queue.workers ? "wants" : ""),
    { content: queue.oldest_s === null ? "–" : length(queue.oldest_s), kind: "num" },
    numeric(queue.delayed),
    runningCell(queue),
    heldCell(queue),
    numeric(queue.failed, queue.failed ? "broke" : ""),
    own === null ? "no limit" : wide(meter(own, `${number(queue.running + queue.abandoned)} of ${number(queue.concurrency)}`, "Its own limit in use")),
    queue.workers ? wide(meter(queue.workers_saturation, count(queue.workers, "worker"), "Places of its workers in use")) : { content: "no worker", kind: queue.ready ? "wants" : "" },
    limits(queue),
    role === "admin" ? limitsButton(queue) : "",
  ];
}

/** @param {QueueView} queue */
function limits(queue) {
  const per = queue.period_s === 1 ? "second" : length(queue.period_s);
  const told = [
    queue.concurrency === null ? null : `${number(queue.concurrency)} at once`,
    queue.concurrency_per_key === null ? null : `${number(queue.concurrency_per_key)} per key`,
    queue.rate === null ? null : `${number(queue.rate)} per ${per}`,
    queue.rate_per_key === null ? null : `${number(queue.rate_per_key)} per key and ${per}`,
  ].filter(Boolean);
  return told.length ? told.join(", ") : el("span", { class: "faint" }, "none");
}

/** @param {ScheduleView} schedule */
function scheduleCells(schedule) {
  return [
    [el("code", null, schedule.name), schedule.paused ? [" ", badge("held", "paused")] : null],
    schedule.flow,
    wide([el("code", null, schedule.when), el("span", { class: "faint" }, ` ${schedule.timezone}`)]),
    wide(schedule.next_at ? [time(schedule.next_at), " ", el("span", { class: "faint" }, ago(schedule.next_at))] : "–"),
    wide(schedule.last_run_id ? [runLink(schedule.last_run_id), " ", badge(schedule.last_status ?? "")] : "–"),
    role === "viewer" ? "" : pauseButton(schedule),
  ];
}

// -- meters: a bar of the used share, and its numbers -------------------------------------------

/** A share between 0 and 1 (more is shown as full), with a name for screen readers.
 *  @param {number | null} share
 *  @param {string} text
 *  @param {string} name */
function meter(share, text, name) {
  const known = typeof share === "number";
  const part = known ? Math.max(0, Math.min(1, share)) : 0;
  const kind = part >= 1 ? "is-full" : part >= 0.8 ? "is-high" : "";
  const told = known ? `${Math.round(share * 100)} %` : "–";
  return el(
    "span",
    { class: `meter ${kind}`.trim(), role: "img", "aria-label": `${name}: ${text ? `${text}, ` : ""}${told}` },
    svg(
      "svg",
      { viewBox: `0 0 ${METER_WIDTH} 8`, "aria-hidden": "true" },
      svg("rect", { class: "track", width: METER_WIDTH, height: 8, rx: 4 }),
      part > 0 ? svg("rect", { class: "part", width: Math.max(4, part * METER_WIDTH), height: 8, rx: 4 }) : null,
    ),
    el("b", { "aria-hidden": "true" }, told),
    text ? el("span", { class: "faint", "aria-hidden": "true" }, text) : null,
  );
}

// -- actions ------------------------------------------------------------------------------------

/** @param {ScheduleView} schedule */
function pauseButton(schedule) {
  const name = schedule.paused ? "Resume" : "Pause";
  const button = el("button", { type: "button", "aria-label": `${name}: schedule ${schedule.name}` }, name);
  button.addEventListener("click", () =>
    decide({
      title: schedule.paused ? "Resume the schedule" : "Pause the schedule",
      about: [
        el("p", null, el("code", null, schedule.name), `, ${schedule.when}, starts ${schedule.flow}`),
        el("p", null, schedule.paused ? `Its policy for missed ticks: ${schedule.catch_up}.` : "It starts no run until somebody resumes it. Runs that it started continue."),
      ],
      button: name,
      send: async () => {
        await act(schedule.paused ? "schedule/resume" : "schedule/pause", { name: schedule.name }, {});
        done(null, schedule.paused ? "The schedule is resumed." : "The schedule is paused.");
        await look();
        return null;
      },
    }),
  );
  return button;
}

/** @param {QueueView} queue */
function limitsButton(queue) {
  const button = el("button", { type: "button", "aria-label": `Limits of queue ${queue.name}` }, "Limits…");
  const of = (/** @type {"concurrency" | "concurrency_per_key" | "rate"} */ name, /** @type {string} */ label) =>
    fields.number({ name, label, value: queue[name], whole: true, min: 1, help: "Left empty: no limit." });
  button.addEventListener("click", () =>
    decide({
      title: "Limits of the queue",
      about: [el("p", null, el("code", null, queue.name)), el("p", null, "Running runs continue; the new limits apply to the next runs.")],
      fields: [
        of("concurrency", "Runs at work at once"),
        of("concurrency_per_key", "Runs at work at once, per key"),
        of("rate", `Starts per ${length(queue.period_s)}`),
        fields.tickFor({ name: "paused", label: "Paused: no run of it is started", value: queue.paused }),
      ],
      button: "Set the limits",
      send: async (values) => {
        await act("queue", { name: queue.name }, values);
        done(null, "The limits are set.");
        await Promise.all([look(), lookBack()]);
        return null;
      },
    }),
  );
  return button;
}

ready.then((who) => {
  role = who.role;
  onChange(() => Promise.all([look(), lookBack()]));
  // A worker's places change without a commit: it reports them with its heartbeat.
  setInterval(() => document.hidden || look(), EVERY_MS);
  return Promise.all([look(), lookBack()]);
}).catch(failed);
