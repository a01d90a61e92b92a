// The HTTP client of the page: reads, actions, and streams of changes.
// @ts-check

import { listen } from "./events.js";
import { read, written } from "./numbers.js";
import { HEADER, forget, secret } from "./session.js";

/** @import { Acts, Me, Reads, Streams } from "./api-types.js" */
/** @import { ServerEvent } from "./events.js" */
/** @typedef {Record<string, (data?: any, id?: string) => void>} Handlers */
/** @typedef {object} Stream
 *  @property {string} path
 *  @property {Record<string, any>} params
 *  @property {Handlers} handlers
 *  @property {string} id
 *  @property {AbortController | null} stopping
 *  @property {number} tries
 *  @property {number} timer
 *  @property {boolean} ended */

const ROOT = "/api/v1";
const READ_LIMIT_MS = 60000;
const RETRY_MS = [500, 1000, 2000, 5000, 10000];

/** An error of the server, or that it cannot be reached (type "Unreachable"). */
export class ApiError extends Error {
  /**
   * @param {string} type
   * @param {string} message
   * @param {number} status
   * @param {Record<string, any>} [data]
   */
  constructor(type, message, status, data) {
    super(message);
    this.type = type;
    this.status = status;
    this.data = data ?? {};
  }
}

/** Events for the shell: `lost` and `found` of the connection; `stranger`, when this browser has
 *  only one half of a session and has to sign in; `store`, with the reason why the store cannot be
 *  read. */
export const connection = new EventTarget();
let isLost = false;
let leaving = false;

/** @param {boolean} found */
function connected(found) {
  if (found === !isLost) return;
  isLost = !found;
  connection.dispatchEvent(new Event(found ? "found" : "lost"));
}

// -- reads and actions --------------------------------------------------------------------------

/** The address of a resource of the API; parameters that are null, undefined or "" are omitted.
 *  @param {string} path
 *  @param {Record<string, any> | null} params */
export function address(path, params = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params ?? {})) {
    if (value === null || value === undefined || value === "") continue;
    for (const one of Array.isArray(value) ? value : [value]) query.append(name, String(one));
  }
  const asked = query.toString();
  const start = path.startsWith("/api/") ? path : `${ROOT}/${path.replace(/^\//, "")}`;
  return asked ? `${start}?${asked}` : start;
}

/** Send a GET request: `get("run", {id})`.
 *  @template {keyof Reads} P
 *  @param {P} path
 *  @param {Reads[P]["asked"]} [params]
 *  @returns {Promise<Reads[P]["answer"]>} */
export function get(path, params) {
  return asked("GET", path, params);
}

/** Perform an action: `act("run/cancel", {id}, {reason}, etag)`.
 *  @template {keyof Acts} P
 *  @param {P} path
 *  @param {Acts[P]["asked"]} params
 *  @param {Acts[P]["body"]} body
 *  @param {string | null} etag
 *  @param {string} method
 *  @returns {Promise<Acts[P]["answer"]>} */
export async function act(path, params, body = {}, etag = null, method = "POST") {
  /** @type {Record<string, string>} */
  const headers = { "Content-Type": "application/json" };
  if (etag) headers["If-Match"] = `"${etag}"`;
  return asked(method, path, params, { headers, body: written(body, { indent: 0 }) });
}

/** @type {Promise<Me> | null} */
let known = null;

/** The visitor, requested once per page. */
export function me() {
  known ??= get("me").catch((error) => {
    known = null;
    throw error;
  });
  return known;
}

/** End the session. */
export async function signOut() {
  await act("session", {}, {}, null, "DELETE");
  forget();
  location.replace("/");
}

/**
 * @param {string} method
 * @param {string} path
 * @param {Record<string, any> | undefined} params
 * @param {RequestInit} more
 * @returns {Promise<any>}
 */
async function asked(method, path, params, more = {}) {
  const [answer, data] =
    method === "GET" ? await answeredInTime(path, params) : await answered(method, path, params, more);
  if (!answer.ok) throw refused(answer, data);
  if (path !== "me") usable("");
  return data;
}

/**
 * @param {string} method
 * @param {string} path
 * @param {Record<string, any> | undefined} params
 * @param {RequestInit} more
 * @returns {Promise<[Response, any]>}
 */
async function answered(method, path, params, more) {
  const answer = await fetched(address(path, params), { method, ...more });
  return [answer, await told(answer)];
}

/** Read with a time limit: a page that waits forever would show an old state without a warning.
 *  Actions have no limit: an action without an answer may have happened.
 *  @param {string} path
 *  @param {Record<string, any> | undefined} params */
async function answeredInTime(path, params) {
  const stopping = new AbortController();
  const timer = setTimeout(() => stopping.abort(), READ_LIMIT_MS);
  try {
    return await answered("GET", path, params, { signal: stopping.signal });
  } catch (error) {
    if (!stopping.signal.aborted) throw error;
    throw new ApiError("Unreachable", "The server of this page did not answer in time.", 0);
  } finally {
    clearTimeout(timer);
  }
}

let unusable = "";

/** Notify the shell when the store becomes unreadable, and when it is readable again.
 *  @param {string} why */
function usable(why) {
  if (why === unusable) return;
  unusable = why;
  connection.dispatchEvent(new CustomEvent("store", { detail: why }));
}

/**
 * @param {Response} answer
 * @param {any} data
 */
function refused(answer, data) {
  const error = data.error ?? {};
  if (answer.status === 503) usable(error.message ?? "The server gave no reason.");
  return new ApiError(
    error.type ?? "Refused",
    error.message ?? `The server answered ${answer.status}.`,
    answer.status,
    error,
  );
}

/** Send a request with both halves of the session.
 *  @param {string} url
 *  @param {RequestInit} options */
async function fetched(url, options) {
  const half = secret();
  const headers = half === null ? options.headers : { ...options.headers, [HEADER]: half };
  const answer = await reached(url, { ...options, headers });
  if (answer.status === 401) stranger(half);
  return answer;
}

/**
 * @param {string} url
 * @param {RequestInit} options
 */
async function reached(url, options) {
  try {
    const answer = await fetch(url, { credentials: "same-origin", cache: "no-store", ...options });
    connected(true);
    return answer;
  } catch (error) {
    if (options.signal?.aborted) throw error;
    connected(false);
    throw new ApiError("Unreachable", "The server of this page does not answer.", 0);
  }
}

/** The session has ended, or only its cookie is left. A reload shows the sign-in page, unless the
 *  cookie is still accepted: then this page asks for a token itself.
 *  @param {string | null} half */
function stranger(half) {
  if (leaving) return;
  if (half === null) return connection.dispatchEvent(new Event("stranger"));
  leaving = true;
  forget(half);
  location.reload();
}

/** The body of a response. A refusal may have any body (a proxy's page); a success with an
 *  incomplete body is an error.
 *  @param {Response} answer
 *  @returns {Promise<any>} */
async function told(answer) {
  try {
    return read(await answer.text());
  } catch {
    if (!answer.ok) return {};
    throw new ApiError("Unreachable", "The response of the server is incomplete or cannot be read.", 0);
  }
}

// -- streams ------------------------------------------------------------------------------------

/** Listen to a stream of events: `stream("run/history/stream", {id, after}, {entry, run, end})`.
 *  Each handler receives the data and the event's id. The stream resumes where it stopped when the
 *  connection breaks, and pauses while the tab is hidden: browsers open only six connections to one
 *  server. Returns `close()`.
 *  @template {keyof Streams} P
 *  @param {P} path
 *  @param {Streams[P]} params
 *  @param {Handlers} handlers */
export function stream(path, params, handlers) {
  const state = { path, params, handlers, id: "", stopping: null, tries: 0, timer: 0, ended: false };
  const seen = () => (document.hidden ? rest(state) : open(state));
  document.addEventListener("visibilitychange", seen);
  addEventListener("pagehide", () => rest(state));
  addEventListener("pageshow", seen);
  seen();
  return function close() {
    state.ended = true;
    document.removeEventListener("visibilitychange", seen);
    rest(state);
  };
}

/** @param {Stream} state */
function rest(state) {
  clearTimeout(state.timer);
  state.stopping?.abort();
  state.stopping = null;
}

/** @param {Stream} state */
async function open(state) {
  if (state.ended || state.stopping) return;
  clearTimeout(state.timer);
  const stopping = new AbortController();
  state.stopping = stopping;
  /** @type {number | null} */
  let retryMs = null;
  /** @type {any} */
  let error = null;
  try {
    retryMs = await hear(state, stopping);
  } catch (found) {
    error = found;
    if (error.status === 401) return rest(state);
  }
  if (state.stopping === stopping) broken(state, retryMs, error);
}

/** Open the stream and read it to its end.
 *  @param {Stream} state
 *  @param {AbortController} stopping */
async function hear(state, stopping) {
  /** @type {Record<string, string>} */
  const headers = { Accept: "text/event-stream" };
  if (state.id) headers["Last-Event-ID"] = state.id;
  const { signal } = stopping;
  const answer = await fetched(address(state.path, state.params), { headers, signal });
  if (!answer.ok) throw refused(answer, await told(answer));
  state.tries = 0;
  state.handlers.open?.();
  const isOurs = () => state.stopping === stopping;
  return listen(answer, (event) => isOurs() && heard(state, event), () => stopping.abort());
}

/**
 * @param {Stream} state
 * @param {ServerEvent} heard
 */
function heard(state, { event, data, id }) {
  if (id) state.id = id;
  if (event === "open" || !Object.hasOwn(state.handlers, event)) return;
  try {
    state.handlers[event](data ? read(data) : {}, id);
  } catch (error) {
    // An event that cannot be shown does not end the stream.
    reportError(error);
  }
}

/**
 * @param {Stream} state
 * @param {number | null} retryMs
 * @param {any} error
 */
function broken(state, retryMs, error) {
  rest(state);
  if (state.ended || document.hidden) return;
  const wait = Math.max(retryMs ?? 0, RETRY_MS[Math.min(state.tries++, RETRY_MS.length - 1)]);
  if (state.tries > 1 && !error?.status) connected(false);
  state.timer = setTimeout(() => open(state), Math.min(wait, Math.max(...RETRY_MS)));
}
