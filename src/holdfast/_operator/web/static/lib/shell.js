// The frame of every page: navigation with counts, theme, keys, messages, connection.
//
// A page only has to import this module.
// @ts-check

import { connection, get, me, signOut } from "./api.js";
import { append, byId, clear, el, inside, refreshTimes, runUrl, say, set, unread, visible } from "./dom.js";
import { number, setClock } from "./format.js";
import { offered as waiting } from "./session.js";
import { changes } from "./changes.js";

/** @import { Me } from "./api-types.js" */

const COUNT_EVERY_MS = 4000;
const TIMES_EVERY_MS = 1000;
const TOAST_MS = 7000;
const THEMES = ["system", "light", "dark"];

// -- messages -----------------------------------------------------------------------------------

/** Show a short message, also to screen readers. Kinds: "info", "good", "bad". A bad one stays
 *  until it is closed, as does one with a button.
 *  @param {string} text
 *  @param {"info" | "good" | "bad"} kind
 *  @param {HTMLButtonElement | null} button */
export function toast(text, kind = "info", button = null) {
  const close = el("button", { type: "button", class: "quiet", "aria-label": "Close message" }, "×");
  const node = el("div", { class: `toast is-${kind}` }, el("span", null, text), button, close);
  close.addEventListener("click", () => node.remove());
  byId("toasts").append(node);
  if (kind !== "bad" && !button) setTimeout(() => node.remove(), TOAST_MS);
  return node;
}

/** Announce a text to screen readers only.
 *  @param {string} text */
export function announce(text) {
  const place = byId("spoken");
  place.textContent = "";
  setTimeout(() => say(place, text), 50);
}

/** Show the message of an error.
 *  @param {any} error */
export function failed(error) {
  if (error?.status === 401) return;
  if (error?.type === "Unreachable" || error?.status === 503) return; // Banners report these.
  toast(error?.message ?? String(error), "bad");
}

/** Read a part of the page. If that fails, a box before `anchor` names the unread part, until it is
 *  read: an unknown part must not look empty.
 *  @param {HTMLElement} anchor
 *  @param {string} what
 *  @param {() => Promise<any>} read */
export async function reading(anchor, what, read) {
  /** @type {Element | null} */
  let box = null;
  try {
    await read();
  } catch (error) {
    if (/** @type {any} */ (error)?.status === 401) return;
    box = unread(what, error);
    if (anchor.wasRead) append(box, " The data below may be old.");
  }
  anchor.wasRead ||= box === null;
  if (box && anchor.unread?.textContent === box.textContent) return;
  anchor.unread?.remove();
  anchor.unread = box;
  if (box) anchor.before(box);
}

/**
 * @param {string} id
 * @param {string} kind
 * @param {string} [text]
 */
function banner(id, kind, text) {
  const place = byId("banners");
  const there = [...place.children].find((node) => node.getAttribute("data-id") === id);
  if (!text) return there?.remove();
  if (there) return say(there, text);
  place.append(el("div", { class: `banner is-${kind}`, "data-id": id, role: "alert" }, text));
}

// -- changes ------------------------------------------------------------------------------------

/** @type {Set<() => void>} */
const listeners = new Set();

/** Call a function when the store has changed (at most about once a second), and when the page
 *  becomes visible again. Returns a function that stops this.
 *  @param {() => void} listener */
export function onChange(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

function changed() {
  countSoon();
  // The server caches data about all runs for some seconds: ask again when nothing changes.
  clearTimeout(settling);
  settling = setTimeout(countSoon, COUNT_EVERY_MS);
  for (const listener of listeners) listener();
}

// -- counts -------------------------------------------------------------------------------------

let counting = 0;
let countedMs = 0;
let settling = 0;

function countSoon() {
  if (counting) return;
  const wait = Math.max(0, countedMs + COUNT_EVERY_MS - Date.now());
  counting = setTimeout(refreshCounts, wait);
}

/** Read the counts of decisions and findings, and show them beside the links. */
export async function refreshCounts() {
  counting = 0;
  countedMs = Date.now();
  const [pending, findings] = await Promise.allSettled([get("pending"), get("findings")]);
  if (pending.status === "fulfilled") {
    const { questions = [], doubts = [], troubles = [] } = pending.value;
    const waiting = questions.length + doubts.length + troubles.length;
    showCount("pending", waiting, "waiting for a person");
  } else showUnknown("pending", pending.reason, "The number of pending decisions");
  if (findings.status === "fulfilled") {
    const { findings: found = [], complete } = findings.value;
    const open = found.filter((one) => one.open !== false).length;
    showCount("findings", open, "open findings", complete === false);
  } else showUnknown("findings", findings.reason, "The number of open findings");
}

/**
 * @param {string} name
 * @param {number} value
 * @param {string} meaning
 * @param {boolean} atLeast
 */
function showCount(name, value, meaning, atLeast = false) {
  /** @type {HTMLElement | null} */
  const place = document.querySelector(`nav [data-count="${name}"]`);
  if (!place) return;
  const more = atLeast ? "+" : "";
  say(place, value || atLeast ? (value >= 100 ? "99+" : number(value) + more) : "");
  place.hidden = !value && !atLeast;
  const least = atLeast ? "at least " : "";
  set(place, "aria-label", place.hidden ? null : `${least}${number(value)} ${meaning}`);
  if (name === "pending") document.title = titled(value);
}

/** Show a count that could not be read as unknown, not as zero.
 *  @param {string} name
 *  @param {any} error
 *  @param {string} what */
function showUnknown(name, error, what) {
  /** @type {HTMLElement | null} */
  const place = document.querySelector(`nav [data-count="${name}"]`);
  if (!place || error?.status === 401) return;
  say(place, "?");
  place.hidden = false;
  set(place, "aria-label", `${what} could not be read`);
}

/** @param {number} value */
function titled(value) {
  const plain = document.title.replace(/^\(\d+\+?\) /, "");
  return value ? `(${value}) ${plain}` : plain;
}

// -- keys ---------------------------------------------------------------------------------------

/** @type {{ keys: string, meaning: string, action: ((event: KeyboardEvent) => void) | null }[]} */
const shortcuts = [];
let first = "";

/** Bind a key, or a sequence of two ("g r"), to an action, and list it in the help. Without an
 *  action it is only listed: the browser performs it.
 *  @param {string} keys
 *  @param {string} meaning
 *  @param {((event: KeyboardEvent) => void) | null} action */
export function shortcut(keys, meaning, action = null) {
  shortcuts.push({ keys, meaning, action });
}

/** @param {EventTarget | null} target */
function isTyping(target) {
  return !(target instanceof Element) || target.closest("input, textarea, select, [contenteditable]") !== null;
}

/** @param {KeyboardEvent} event */
function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
  if (isTyping(event.target) || document.querySelector("dialog[open]")) return;
  const keys = first ? `${first} ${event.key}` : event.key;
  const found = shortcuts.find((one) => one.keys === keys && one.action);
  const begins = !first && shortcuts.some((one) => one.keys.startsWith(`${event.key} `));
  first = "";
  if (found) {
    event.preventDefault();
    found.action?.(event);
  } else if (begins) {
    first = event.key;
    setTimeout(() => (first = ""), 1200);
  }
}

function help() {
  const rows = shortcuts.map(({ keys, meaning }) =>
    el(
      "tr",
      null,
      el("th", { scope: "row" }, keys.split(" ").map((key) => el("kbd", null, key))),
      el("td", null, meaning),
    ),
  );
  clear(byId("keys"), rows);
  byId("help", HTMLDialogElement).showModal();
}

function search() {
  const field = byId("search", HTMLInputElement);
  field.focus();
  field.select();
}

/** Open the run with this id, or the only run whose id contains it; else list the matching runs.
 *  @param {string} text */
async function jump(text) {
  if (!text) return;
  const { runs, next } = await get("runs", { search: text, limit: 100 });
  const exact = runs.find((run) => run.run_id === text);
  const only = runs.length === 1 && !next ? runs[0] : null;
  const found = exact ?? only;
  location.assign(found ? runUrl(found.run_id) : `/?search=${encodeURIComponent(text)}`);
}

// -- theme --------------------------------------------------------------------------------------

function theme() {
  return document.documentElement.dataset.theme ?? "system";
}

function nextTheme() {
  const next = THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    if (next === "system") localStorage.removeItem("holdfast-theme");
    else localStorage.setItem("holdfast-theme", next);
  } catch {
    // Without storage the choice is kept for this page only.
  }
  showTheme();
  announce(`Theme: ${next}`);
}

function showTheme() {
  const button = byId("theme");
  say(inside(button, "span"), theme());
  set(button, "aria-label", `Theme: ${theme()}. Change it`);
}

// -- signing in ---------------------------------------------------------------------------------

/** @type {string | null} */
let token = null;

/** Handle a token in the address of a signed-in browser: hide it, and do not switch the user
 *  without asking. */
function offered() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found !== null) history.replaceState(null, "", location.pathname + location.search);
  const given = found ?? waiting();
  if (!given) return;
  token = given;
  ready.then(({ actor }) => {
    const said = `The address contains a token. It was not used: you are signed in as ${actor}.`;
    toast(said, "info", useToken("Use it instead"));
  }, () => {});
}

/** @param {string} name */
function useToken(name) {
  const button = el("button", { type: "button" }, name);
  button.addEventListener("click", async () => {
    const { exchange } = await import("../pages/sign-in.js");
    const wrong = await exchange(token ?? "");
    if (wrong) toast(wrong, "bad");
  });
  return button;
}

/** The cookie was accepted, but the other half of the session is missing: ask for a token here. */
function signInHere() {
  const button = el("button", { class: "primary", disabled: true }, "Sign in");
  const field = el("input", { id: "token", type: "password", autocomplete: "off", required: true });
  clear(
    byId("main"),
    el(
      "div",
      { class: "empty" },
      el("h1", null, "Sign in again"),
      el("p", null, "This browser has lost a part of its session for this page."),
      el(
        "form",
        { id: "sign-in", class: "row" },
        el("label", { for: "token" }, "Token"),
        field,
        button,
      ),
      token === null ? null : useToken("Sign in with the token of the address"),
      el("p", { id: "trouble", class: "trouble", role: "alert" }),
    ),
  );
  field.focus();
  // A submit before the listener is set would only reload the page.
  import("../pages/sign-in.js").then(() => (button.disabled = false), failed);
}

// -- start --------------------------------------------------------------------------------------

async function introduce() {
  const who = await me();
  if (who.now) setClock(who.now);
  const { url = "", namespace = "default" } = who.store ?? {};
  const place = url.split("/").pop() || url;
  const told = namespace === "default" ? place : `${place} · ${namespace}`;
  clear(byId("store"), el("span", { title: `${url}, namespace ${namespace}` }, told));
  clear(byId("actor"), `${who.actor ?? ""} (${who.role ?? ""})`);
  document.documentElement.dataset.role = who.role ?? "viewer";
  banner("regression", "bad", who.warning ? visible(who.warning) : "");
  return who;
}

function start() {
  offered();
  addEventListener("hashchange", offered);
  for (const link of /** @type {NodeListOf<HTMLAnchorElement>} */ (document.querySelectorAll("nav a"))) {
    if (link.pathname === location.pathname) set(link, "aria-current", "page");
  }
  shortcut("g r", "Go to the runs", () => location.assign("/"));
  shortcut("g p", "Go to what is pending", () => location.assign("/pending"));
  shortcut("g d", "Go to the findings", () => location.assign("/findings"));
  shortcut("g f", "Go to the fleet", () => location.assign("/fleet"));
  shortcut("g t", "Go to the trends", () => location.assign("/trends"));
  shortcut("/", "Jump to a run by its id, or search", search);
  shortcut("?", "Show these keys", help);
  document.addEventListener("keydown", pressed);
  byId("theme").addEventListener("click", nextTheme);
  byId("keys-button").addEventListener("click", help);
  byId("sign-out").addEventListener("click", () => signOut().catch(failed));
  byId("sign-out", HTMLButtonElement).disabled = false;
  byId("jump").addEventListener("submit", (event) => {
    event.preventDefault();
    jump(byId("search", HTMLInputElement).value.trim()).catch(failed);
  });
  connection.addEventListener("stranger", signInHere, { once: true });
  connection.addEventListener("store", (event) => {
    const why = /** @type {CustomEvent<string>} */ (event).detail;
    const told = "The store cannot be read, so this page may be outdated. The error:";
    banner("store", "bad", why ? `${told} ${why}` : "");
  });
  connection.addEventListener("lost", () =>
    banner("lost", "warn", "No connection to the server of this page. Trying again…"),
  );
  connection.addEventListener("found", () => {
    banner("lost", "", "");
    changed();
  });
  showTheme();
  refreshCounts();
  setInterval(refreshTimes, TIMES_EVERY_MS);
  changes(changed);
}

/** Resolves to the result of `me()`.
 *  @type {Promise<Me>} */
export const ready = introduce();
ready.catch(failed);
start();
