// Nodes: text, links, copy buttons, self-updating times, status.
//
// Names, payloads and model output may contain anything. All of it is shown as text nodes that pass
// `visible`, so that it can neither become an element nor imitate other text.
// @ts-check

import { agoText, clock, moment, ms, words } from "./format.js";
import { isolated, pieces, visible } from "./text.js";

export { visible };

/** @import { Child } from "./globals.js" */
/** @typedef {Record<string, any> | null} Attributes */

const SPOKEN = new Set(["title", "aria-label", "aria-description", "placeholder", "alt"]);
const BARE = new Set(["option", "title", "textarea"]);
const SVG = "http://www.w3.org/2000/svg";

// -- text ---------------------------------------------------------------------------------------

/** Return prose as a node that keeps line breaks and tabs; the parent preserves white space. Each
 *  line has the direction of its first letter, and is isolated.
 *  @param {string} text */
export function lines(text) {
  return el("bdi", { class: "prose" }, inert(text));
}

/** The same as a plain text node, for places where direction is handled.
 *  @param {string} text */
export function inert(text) {
  const parts = text.replace(/\r\n/g, "\n").split("\t");
  return document.createTextNode(parts.map((part) => visible(part, { lines: true })).join("\t"));
}

/** The nodes of a text: right-to-left words are isolated.
 *  @param {Element} node
 *  @param {string} shown */
function worded(node, shown) {
  const found = pieces(shown);
  if (found.length === 1) return [document.createTextNode(shown)];
  if (BARE.has(node.localName)) return [document.createTextNode(isolated(shown))];
  const aside = (/** @type {string} */ text) => {
    const made = node.namespaceURI === SVG ? svg("tspan", { class: "aside" }) : el("bdi", null);
    made.textContent = text;
    return made;
  };
  return found.map((text, at) => (at % 2 ? aside(text) : document.createTextNode(text)));
}

// -- look-ups -------------------------------------------------------------------------------------

/** Return the element with an id, of this type. A template without it is a bug.
 *  @template {Element} [T=HTMLElement]
 *  @param {string} id
 *  @param {new () => T} [kind]
 *  @returns {T} */
export function byId(id, kind) {
  return checked(document.getElementById(id), kind, `#${id}`);
}

/** Return the first element inside another that matches a selector, of this type.
 *  @template {Element} [T=HTMLElement]
 *  @param {ParentNode} parent
 *  @param {string} selector
 *  @param {new () => T} [kind]
 *  @returns {T} */
export function inside(parent, selector, kind) {
  return checked(parent.querySelector(selector), kind, selector);
}

/**
 * @template {Element} T
 * @param {Element | null} found
 * @param {(new () => T) | undefined} kind
 * @param {string} name
 * @returns {T}
 */
function checked(found, kind, name) {
  if (!(found instanceof (kind ?? HTMLElement))) throw new TypeError(`${name} is not in the page`);
  return /** @type {T} */ (found);
}

// -- nodes --------------------------------------------------------------------------------------

/** Make an element. Strings become text nodes through `visible`; functions under `onclick` and the
 *  like become listeners; null, undefined and false are omitted.
 *  @template {keyof HTMLElementTagNameMap} T
 *  @param {T} tag
 *  @param {Attributes} [attributes]
 *  @param {...Child} children
 *  @returns {HTMLElementTagNameMap[T]} */
export function el(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Make an SVG element.
 *  @template {keyof SVGElementTagNameMap} T
 *  @param {T} tag
 *  @param {Attributes} [attributes]
 *  @param {...Child} children
 *  @returns {SVGElementTagNameMap[T]} */
export function svg(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

/**
 * @template {Element} T
 * @param {T} node
 * @param {Attributes | undefined} attributes
 * @param {Child[]} children
 * @returns {T}
 */
function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) set(node, name, value);
  append(node, children);
  return node;
}

/** Set one attribute; null, undefined and false remove it.
 *  @param {Element} node
 *  @param {string} name
 *  @param {any} value */
export function set(node, name, value) {
  if (name.startsWith("on")) return node.addEventListener(name.slice(2), value);
  if (name === "style") throw new TypeError("styles belong in page.css");
  if (value === null || value === undefined || value === false) return node.removeAttribute(name);
  let text = value === true ? "" : String(value);
  if (name === "href" && !isSafe(text)) throw new TypeError("this link is not allowed");
  if (SPOKEN.has(name)) text = isolated(visible(text, { lines: true }));
  if (node.getAttribute(name) !== text) node.setAttribute(name, text);
}

/** @param {string} href */
function isSafe(href) {
  return /^(https?:\/\/|\/(?!\/)|#|\?)/i.test(href);
}

/** Append children: nodes, strings, numbers, and lists of them.
 *  @template {Element} T
 *  @param {T} node
 *  @param {...Child} children
 *  @returns {T} */
export function append(node, ...children) {
  for (const child of /** @type {any[]} */ (children).flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    if (child instanceof Node) node.append(child);
    else node.append(...worded(node, visible(child)));
  }
  return node;
}

/** Replace all children; without new ones, remove them.
 *  @template {Element} T
 *  @param {T} node
 *  @param {...Child} children
 *  @returns {T} */
export function clear(node, ...children) {
  node.replaceChildren();
  return append(node, children);
}

/** The placeholder of a part that could not be read, with the reason.
 *  @param {string} what
 *  @param {any} error */
export function unread(what, error) {
  const why = error?.message ?? String(error);
  const told = `${what} could not be ${error?.type ? "read" : "shown"}: ${why}`;
  return el("div", { class: "trouble-box unread" }, told);
}

/** Set the text of a node; do nothing if it is unchanged.
 *  @param {Element} node
 *  @param {string | number} text */
export function say(node, text) {
  const shown = visible(text);
  if (node.textContent !== shown) node.replaceChildren(...worded(node, shown));
}

/** Make the children of a node one per item, in order. Nodes of remaining items are kept and
 *  updated, so that focus, selection and scroll position stay.
 *  @template I
 *  @template {Element} N
 *  @param {Element} parent
 *  @param {I[]} items
 *  @param {(item: I) => string | number} keyOf
 *  @param {(item: I) => N} make
 *  @param {(node: N, item: I) => void} update */
export function keep(parent, items, keyOf, make, update = () => {}) {
  const before = parent.kept ?? new Map();
  const after = new Map();
  for (const item of items) {
    const key = String(keyOf(item));
    const node = before.get(key) ?? make(item);
    update(node, item);
    after.set(key, node);
  }
  for (const [key, node] of before) if (after.get(key) !== node) node.remove();
  let place = parent.firstElementChild;
  for (const node of after.values()) {
    if (place !== null && node === place) place = place.nextElementSibling;
    else parent.insertBefore(node, place);
  }
  parent.kept = after;
}

// -- links and copy buttons ---------------------------------------------------------------------

/** The address of a run's page.
 *  @param {string} id */
export function runUrl(id) {
  return `/run?id=${encodeURIComponent(id)}`;
}

/** A link to a run.
 *  @param {string} id
 *  @param {string} [text] */
export function runLink(id, text = id) {
  return el("a", { href: runUrl(id), class: "run-id", translate: "no" }, text);
}

/** An external link if the text is a web address, else the text.
 *  @param {string} url */
export function outside(url) {
  if (!/^https?:\/\/[^\s]+$/i.test(url) || visible(url) !== url) return visible(url);
  return el("a", { href: url, rel: "noopener noreferrer", target: "_blank" }, url);
}

/** A button that copies a text, or the result of a function. The copied text is the shown text,
 *  without hidden characters.
 *  @param {string | (() => string)} text
 *  @param {string} name */
export function copyButton(text, name = "Copy") {
  const button = el("button", { type: "button", class: "quiet copy", "aria-label": name }, "Copy");
  button.addEventListener("click", async () => {
    const said = typeof text === "function" ? text() : text;
    const done = await copied(visible(said, { lines: true }));
    say(button, done ? "Copied" : "Select and copy");
    setTimeout(() => say(button, "Copy"), 1600);
  });
  return button;
}

/** @param {string} text */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

/** A command line that can be copied.
 *  @param {string} text */
export function commandLine(text) {
  return el(
    "div",
    { class: "command" },
    el("code", { translate: "no", tabindex: 0, "aria-label": `Command: ${text}` }, text),
    copyButton(text, `Copy the command ${text}`),
  );
}

// -- times --------------------------------------------------------------------------------------

/** A time as an element: local, short, and in full as its title; `exact` has milliseconds.
 *  @param {string | number | null | undefined} at
 *  @param {{ exact?: boolean }} [options] */
export function time(at, { exact = false } = {}) {
  if (!at) return el("span", { class: "faint" }, "–");
  const iso = new Date(ms(at)).toISOString();
  const told = exact ? `${clock(at)}.${iso.slice(20, 23)}` : clock(at);
  return el("time", { datetime: iso, title: moment(at) }, told);
}

/** The time since or until a moment, as an element that updates itself.
 *  @param {string | number | null | undefined} at */
export function ago(at) {
  if (!at) return el("span", { class: "faint" }, "–");
  const iso = new Date(ms(at)).toISOString();
  return el("time", { datetime: iso, "data-ago": "", title: moment(at) }, agoText(at));
}

/** Update all times that `ago` made. */
export function refreshTimes() {
  if (document.hidden) return;
  /** @type {NodeListOf<HTMLTimeElement>} */
  const times = document.querySelectorAll("time[data-ago]");
  for (const node of times) say(node, agoText(node.dateTime));
}

// -- status -------------------------------------------------------------------------------------

// An icon for each, so that colour is never the only distinction.
/** @type {Record<string, string>} */
const SIGNS = {
  queued: "M6 2.5a3.5 3.5 0 1 0 0 7a3.5 3.5 0 1 0 0-7z",
  running: "M4 2.5v7l6-3.5z",
  waiting: "M6 1.8a4.2 4.2 0 1 0 0 8.4a4.2 4.2 0 1 0 0-8.4zM6 3.6V6l1.8 1.4",
  held: "M3.2 2.2h2v7.6h-2zM6.8 2.2h2v7.6h-2z",
  completed: "M2.2 6.4l2.6 2.6l5-6",
  failed: "M2.8 2.8l6.4 6.4M9.2 2.8l-6.4 6.4",
  cancelled: "M6 1.8a4.2 4.2 0 1 0 0 8.4a4.2 4.2 0 1 0 0-8.4zM3.2 8.8l5.6-5.6",
  rolled_back: "M3 4.5h4.2a2.4 2.4 0 0 1 0 4.8H4M5 2.3L2.8 4.5L5 6.7",
  retrying: "M9.6 6a3.6 3.6 0 1 1-1.2-2.7M9 1.4v2.2H6.8",
  in_doubt: "M4 4.2a2 2 0 1 1 2.6 1.9c-.4.2-.6.5-.6 1V7.4M6 9.3v.4",
  info: "M6 5.2v4M6 2.6v.4",
};
const SOLID = new Set(["running", "held"]);

/** The icon of a status.
 *  @param {string} status */
export function sign(status) {
  const path = svg("path", { d: SIGNS[status] ?? SIGNS.info });
  const kind = SOLID.has(status) ? "sign solid" : "sign";
  return svg("svg", { viewBox: "0 0 12 12", class: kind, "aria-hidden": "true" }, path);
}

/** A status as icon and word, with the reason if it is held.
 *  @param {string} status
 *  @param {string | null} [reason] */
export function badge(status, reason) {
  const known = SIGNS[status] ? status : "info";
  const told = reason ? `${words(status)}: ${words(reason)}` : words(status);
  return el("span", { class: `badge is-${known}` }, sign(status), told);
}
