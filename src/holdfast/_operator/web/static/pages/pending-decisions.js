// The page of pending decisions: doubts first, then approvals, then questions.
//
// A card stays unchanged while others come and go, so that the form does not change while somebody
// types an answer.
// @ts-check

import { get } from "../lib/api.js";
import { keyOf, questionCard } from "../dialogs/answer.js";
import { byId, commandLine, el, inside, keep, runLink, say } from "../lib/dom.js";
import { count } from "../lib/format.js";
import { doubtCard } from "../dialogs/settle.js";
import { failed, onChange, reading, ready, refreshCounts } from "../lib/shell.js";

/** @import { DoubtView, Pending, QuestionView, Unreadable } from "../lib/api-types.js" */
/** @typedef {object} Item
 *  @property {string} key
 *  @property {string} kind
 *  @property {DoubtView} [doubt]
 *  @property {QuestionView} [question]
 *  @property {Unreadable} [trouble] */

const list = byId("list");
const told = byId("told");
const empty = byId("empty");
const to = byId("to", HTMLSelectElement);
const kinds = [.../** @type {NodeListOf<HTMLInputElement>} */ (document.querySelectorAll("[name=kind]"))];
const params = new URLSearchParams(location.search);

const SHOWN = 200;
let mayAct = false;
/** @type {Pick<Pending, "questions" | "doubts" | "troubles">} */
let known = { questions: [], doubts: [], troubles: [] };

function look() {
  return reading(list, "The pending decisions", async () => {
    known = await get("pending", { limit: SHOWN });
    draw();
  });
}

async function changed() {
  await Promise.allSettled([look(), refreshCounts()]);
}

function draw() {
  const kind = kinds.find((one) => one.checked)?.value ?? "all";
  const person = to.value;
  const doubts = known.doubts.map((doubt) => ({ key: `doubt ${doubt.run_id} ${doubt.step} ${doubt.etag}`, kind: "doubt", doubt }));
  const asked = known.questions
    .map((question) => ({ key: keyOf(question), kind: question.kind, question }))
    .sort((a, b) => (a.kind === b.kind ? 0 : a.kind === "approval" ? -1 : 1));
  const fits = (/** @type {Item} */ item) =>
    (kind === "all" || item.kind === kind) && (!person || item.question?.to === person);
  const troubles = known.troubles.map((trouble) => ({ key: `trouble ${trouble.run_id}`, kind: "trouble", trouble }));
  const shown = [...doubts, ...troubles, ...asked].filter(fits);
  keep(list, shown, (item) => item.key, card);
  people();
  say(told, summary(doubts.length, asked));
  empty.hidden = shown.length > 0;
  say(inside(empty, "h2"), doubts.length + troubles.length + asked.length ? "Nothing of this kind" : "No pending decisions");
}

/** @param {Item} item */
function card(item) {
  const options = { changed, mayAct };
  if (item.doubt) return doubtCard(item.doubt, options);
  if (item.question) return questionCard(item.question, options);
  return troubleCard(/** @type {Unreadable} */ (item.trouble));
}

/** A damaged run, which may need a person.
 *  @param {Unreadable} trouble */
function troubleCard({ run_id: id, error }) {
  return el(
    "article",
    { class: "card is-trouble", "aria-label": `Damaged: run ${id}` },
    el("header", null, el("span", { class: "kind" }, "Damaged"), runLink(id)),
    el("p", { class: "asks" }, "It may need a person, but it cannot be read."),
    el("div", { class: "trouble-box" }, error),
    commandLine("holdfast store verify"),
  );
}

/**
 * @param {number} doubts
 * @param {Item[]} asked
 */
function summary(doubts, asked) {
  const approvals = asked.filter((item) => item.kind === "approval").length;
  const told = [count(doubts, "doubt"), count(approvals, "approval"), count(asked.length - approvals, "question")];
  if (known.troubles.length) told.push(`${known.troubles.length} damaged`);
  if (Math.max(doubts, asked.length) >= SHOWN) told.push(`the first ${SHOWN} of a kind are shown`);
  return told.join(" · ");
}

function people() {
  const names = [...new Set(known.questions.map((question) => question.to ?? "").filter(Boolean))].sort();
  if (to.value && !names.includes(to.value)) names.push(to.value);
  const options = [{ name: "", label: "anybody" }, ...names.map((name) => ({ name, label: name }))];
  keep(to, options, (one) => one.name, (one) => el("option", { value: one.name }, one.label));
  const shown = /** @type {HTMLElement} */ (to.closest("label"));
  shown.hidden = names.length === 0;
}

for (const one of kinds) one.addEventListener("change", draw);
to.addEventListener("change", draw);
for (const one of kinds) one.checked = one.value === (params.get("kind") ?? "all");
ready.then((who) => {
  mayAct = who.role !== "viewer";
  onChange(look);
  return look();
}).catch(failed);
