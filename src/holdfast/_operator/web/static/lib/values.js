// Readable inputs, outputs and states: as a conversation if the value is one, else as a tree. The
// reader can switch between both, and copy the JSON.
// @ts-check

import { clear, copyButton, el, lines } from "./dom.js";
import { clipped, count, number, words } from "./format.js";
import { conversationIn } from "./messages.js";
import { sourceOf, written } from "./numbers.js";
import { isClipped, scalar, sizeOf, tree } from "./tree.js";

/** @import { Call, Message, Part, Result } from "./messages.js" */
/** @typedef {{ label?: string, full?: (() => void) | null, open?: number, source?: string }} Options */

const SHOWN = 30;
const TEXT_CHARS = 3000;

/** Return a field of an object for people, as `valueView` does.
 *  @param {any} holder
 *  @param {string} name
 *  @param {Options} options */
export function fieldView(holder, name, options) {
  return valueView(holder[name], { ...options, source: sourceOf(holder, name) });
}

/** Return a value for people. `full` loads the parts that the server has cut; `label` names the
 *  value; `source` is the source text of a number. A value that cannot be shown does not affect
 *  others.
 *  @param {any} value
 *  @param {Options} options */
export function valueView(value, options = {}) {
  try {
    return shown(value, options);
  } catch (error) {
    reportError(error);
    return el("div", { class: "value trouble-box" }, "This value cannot be shown here. The command line shows it: holdfast history.");
  }
}

/**
 * @param {any} value
 * @param {Options} options
 */
function shown(value, { label = "Value", full = null, open = 2, source = undefined }) {
  if (value === null || value === undefined) return el("div", { class: "value faint" }, "nothing");
  if (typeof value === "string" && value) return el("div", { class: "value talk-text" }, long(value));
  if (typeof value !== "object") return el("div", { class: "value mono" }, scalar(value, source));
  const talk = isClipped(value) ? null : talkIn(value);
  const box = el("div", { class: "value" });
  const place = el("div", null);
  const asTree = () => clear(place, tree(value, { label, full, open }));
  const tools = el("div", { class: "value-tools" });
  if (talk) {
    const rest = talk.rest === undefined ? null : tree(talk.rest, { label: `The rest of ${label}`, full });
    const asTalk = () => clear(place, rest, conversation(talk.messages, label));
    tools.append(choice([["Conversation", asTalk], ["Tree", asTree]], label));
    asTalk();
  } else asTree();
  tools.append(copyButton(() => written(value), `Copy ${label} as JSON`));
  box.append(tools, place);
  return box;
}

/** The conversation in a value, or null. A value that only resembles one is shown as a tree.
 *  @param {any} value */
function talkIn(value) {
  try {
    return conversationIn(value);
  } catch {
    return null;
  }
}

/**
 * @param {[string, () => void][]} options
 * @param {string} label
 */
function choice(options, label) {
  const group = el("span", { class: "segments", role: "group", "aria-label": `How to show: ${label}` });
  const buttons = options.map(([name, show], at) => {
    const button = el("button", { type: "button", "aria-pressed": String(at === 0) }, name);
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      show();
    });
    return button;
  });
  group.append(...buttons);
  return group;
}

// -- conversation -------------------------------------------------------------------------------

/** Return messages as a conversation; of a long one, the newest, and the others on demand.
 *  @param {Message[]} messages
 *  @param {string} label */
export function conversation(messages, label = "Conversation") {
  const box = el(
    "ol",
    { class: "talk", "aria-label": `${label}: ${count(messages.length, "message")}` },
  );
  let from = Math.max(0, messages.length - SHOWN);
  const add = (/** @type {Message[]} */ list, /** @type {Node | null} */ place) => box.insertBefore(el("div", null), place).replaceWith(...list.map(message));
  add(messages.slice(from), null);
  if (from > 0) {
    const more = el("button", { type: "button", class: "quiet" });
    const told = () => clear(more, `Show ${number(Math.min(from, SHOWN))} earlier of ${number(from)}`);
    const item = el("li", { class: "talk-more" }, more);
    more.addEventListener("click", () => {
      const until = from;
      from = Math.max(0, from - SHOWN);
      add(messages.slice(from, until), item.nextSibling);
      if (from) told();
      else item.remove();
    });
    told();
    box.prepend(item);
  }
  return box;
}

/** @param {Message} message */
function message({ role, name, parts }) {
  const kind = ["system", "developer", "user", "assistant", "tool"].includes(role) ? role : "other";
  const said = el(
    "div",
    { class: "talk-said" },
    parts.length ? parts.map(part) : el("span", { class: "faint" }, "no content"),
  );
  return el(
    "li",
    { class: `talk-message is-${kind}` },
    el(
      "div",
      { class: "talk-role" },
      words(role),
      name ? el("span", { class: "faint" }, ` ${name}`) : null,
    ),
    said,
  );
}

/** @param {Part} one */
function part(one) {
  if (one.kind === "text") return el("div", { class: "talk-text" }, long(one.text));
  if (one.kind === "thought") return el(
    "details",
    { class: "talk-thought" },
    el("summary", null, "Thought"),
    el("div", { class: "talk-text" }, long(one.text)),
  );
  if (one.kind === "call") return toolCall(one);
  if (one.kind === "result") return toolResult(one);
  return tree(one.value, { open: 1, label: "Part of the message" });
}

/** @param {Call} call */
function toolCall({ name, args, id }) {
  const isSmall = args === null || typeof args !== "object" || sizeOf(args) < 400;
  return el(
    "div",
    { class: "talk-call" },
    el(
      "div",
      null,
      el("span", { class: "talk-arrow", "aria-hidden": "true" }, "→ "),
      el("span", { class: "faint" }, "calls "),
      el("code", null, name),
      id ? el("span", { class: "faint mono" }, ` ${clipped(id, 40)}`) : null,
    ),
    args === null ? null : typeof args === "object" ? tree(
      args,
      { open: isSmall ? 2 : 1, label: `Arguments of ${name}` },
    ) : scalar(args),
  );
}

/** @param {Result} result */
function toolResult({ value, id, failed }) {
  const told = failed ? "failed" : "result";
  return el(
    "div",
    { class: failed ? "talk-call is-failed" : "talk-call" },
    el(
      "div",
      null,
      el("span", { class: "talk-arrow", "aria-hidden": "true" }, "← "),
      el("span", { class: "faint" }, told),
      id ? el("span", { class: "faint mono" }, ` ${clipped(id, 40)}`) : null,
    ),
    typeof value === "string" ? el(
      "div",
      { class: "talk-text mono" },
      long(value),
    ) : value === null ? null : tree(value, { open: 1, label: "Result" }),
  );
}

/** @param {string} text */
function long(text) {
  if (text.length <= TEXT_CHARS) return lines(text);
  const box = el("span", null, lines(text.slice(0, TEXT_CHARS)), "… ");
  const more = el(
    "button",
    { type: "button", class: "quiet" },
    `Show all (${number(text.length)} characters)`,
  );
  more.addEventListener("click", () => clear(box, lines(text)));
  box.append(more);
  return box;
}
