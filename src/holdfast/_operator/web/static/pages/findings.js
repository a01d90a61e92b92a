// Findings of the watchdog: open ones first, by severity, each with the next actions.
// @ts-check

import { get } from "../lib/api.js";
import { ago, byId, clear, commandLine, el, keep, runLink, say } from "../lib/dom.js";
import { count, number, words } from "../lib/format.js";
import { failed, onChange, reading, ready } from "../lib/shell.js";

/** @import { Finding } from "../lib/api-types.js" */
/** @import { Child } from "../lib/globals.js" */

const list = byId("list");
const told = byId("told");
const empty = byId("empty");
const kind = byId("kind", HTMLSelectElement);
/** @type {Record<string, number>} */
const RANK = { error: 0, warning: 1, info: 2 };
/** @type {Record<string, string>} */
const SIGNS = { error: "Error", warning: "Warning", info: "Note" };
/** @type {Record<string, string>} */
const DID = { hold: "the run was held", cancel: "the run was cancelled" };
/** @type {Finding[]} */
let known = [];
let complete = true;

const look = () => reading(list, "The findings", read);

async function read() {
  const answer = await get("findings");
  known = answer.findings ?? [];
  const notes = [...(answer.troubles ?? [])];
  complete = answer.complete !== false;
  if (!complete) notes.push(`Only the newest ${number(answer.looked_at)} runs were examined: findings in the others are unknown.`);
  clear(byId("troubles"), notes.map((note) => el("p", { class: "note-box" }, note)));
  draw();
}

function draw() {
  const kinds = [...new Set(known.map((finding) => finding.kind))].sort();
  const options = ["", ...kinds];
  keep(kind, options, (name) => name, (name) => el("option", { value: name }, name ? words(name) : "all"));
  const open = (/** @type {Finding} */ finding) => finding.open !== false;
  const shown = known
    .filter((finding) => !kind.value || finding.kind === kind.value)
    .sort((a, b) => Number(open(b)) - Number(open(a)) || RANK[a.severity] - RANK[b.severity] || (a.since < b.since ? 1 : -1));
  keep(list, shown, (finding) => `${finding.run_id} ${finding.id}`, make, update);
  const opened = known.filter(open).length;
  const over = known.length - opened;
  say(told, `${complete ? "" : "at least "}${opened} open${over ? ` · ${over} noted, and over` : ""}`);
  empty.hidden = shown.length > 0 || (!complete && !known.length);
}

/** @param {Finding} finding */
function make(finding) {
  return el("article", { "aria-label": `${words(finding.kind)} in run ${finding.run_id}` });
}

/**
 * @param {HTMLElement} node
 * @param {Finding} finding
 */
function update(node, finding) {
  const now = JSON.stringify(finding);
  if (node.told === now) return;
  node.told = now;
  const over = finding.open === false;
  node.className = `found is-${over ? "over" : finding.severity}`;
  clear(
    node,
    el(
      "header",
      null,
      el("span", { class: "severity" }, over ? "Over" : (SIGNS[finding.severity] ?? finding.severity)),
      el("h3", null, words(finding.kind)),
      runLink(finding.run_id),
      el("span", { class: "faint" }, finding.flow),
      el("span", { class: "when" }, ago(finding.since)),
    ),
    el("p", null, finding.text),
    evidence(finding),
    over ? null : finding.actions.map((one) => commandLine(one)),
  );
}

/** @param {Finding} finding */
function evidence(finding) {
  /** @type {[string, Child][]} */
  const facts = [];
  if (finding.steps.length) facts.push(["Steps", listed(finding.steps)]);
  if (finding.entries.length) facts.push(["Entries", listed(finding.entries)]);
  if (finding.noted_at) facts.push(["Noted", [ago(finding.noted_at), did(finding.did)]]);
  if (!facts.length) return null;
  return el("dl", { class: "facts" }, facts.flatMap(([name, value]) => [el("dt", null, name), el("dd", null, value)]));
}

/** The reaction to a finding, in words.
 *  @param {string | null} what */
function did(what) {
  if (!what || what === "note") return "";
  return `, and ${DID[what] ?? what}`;
}

/** @param {(string | number)[]} items */
function listed(items) {
  const shown = items.slice(0, 12);
  const more = items.length - shown.length;
  return [el("code", null, shown.join(", ")), more > 0 ? ` and ${count(more, "other")}` : ""];
}

kind.addEventListener("change", draw);
ready.then(() => {
  onChange(look);
  return look();
}).catch(failed);
