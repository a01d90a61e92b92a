// The one way to the server: reading, acting, and hearing of what changes.

const ROOT = "/api/v1";
const RETRY_MS = [500, 1000, 2000, 5000, 10000];

/** What the server refused, or that it could not be asked (type "Unreachable"). */
export class ApiError extends Error {
  constructor(type, message, status, data) {
    super(message);
    this.type = type;
    this.status = status;
    this.data = data ?? {};
  }
}

/** Tells the shell of the connection: `lost` and `found` events. */
export const connection = new EventTarget();
let isLost = false;

function connected(found) {
  if (found === !isLost) return;
  isLost = !found;
  connection.dispatchEvent(new Event(found ? "found" : "lost"));
}

// -- reading and acting -------------------------------------------------------------------------

/** The address of something in the API; parameters that are null, undefined or "" are left out. */
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

/** Read something: `get("run", {id})`. */
export function get(path, params) {
  return asked("GET", path, params);
}

/** Do something: `act("run/cancel", {id}, {reason}, seen)`. */
export async function act(path, params, body = {}, seen = null, method = "POST") {
  const who = await me();
  const headers = { "Content-Type": "application/json", "X-Holdfast-CSRF": who.csrf ?? "" };
  if (seen) headers["If-Match"] = `"${seen}"`;
  return asked(method, path, params, { headers, body: JSON.stringify(body) });
}

let known = null;

/** Who I am, asked once per page. */
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
  location.replace("/");
}

async function asked(method, path, params, more = {}) {
  const answer = await fetched(address(path, params), { method, ...more });
  const data = await told(answer);
  if (answer.ok) return data;
  if (answer.status === 401) location.reload();
  const error = data.error ?? {};
  throw new ApiError(
    error.type ?? "Refused",
    error.message ?? `The server answered ${answer.status}.`,
    answer.status,
    error,
  );
}

async function fetched(url, options) {
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

async function told(answer) {
  try {
    return await answer.json();
  } catch {
    return {};
  }
}

// -- hearing ------------------------------------------------------------------------------------

/** Listen to a stream of events: `stream("run/tail", {id, after}, {entry, run, end})`. Each handler
 *  gets the data and the event's id. It goes on where it stopped when the connection breaks, and
 *  rests while the tab is hidden: browsers open only six connections to one server.
 *  Returns `close()`. */
export function stream(path, params, handlers) {
  const state = { path, params: { ...params }, handlers, source: null, tries: 0, timer: 0, ended: false };
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

function rest(state) {
  clearTimeout(state.timer);
  state.source?.close();
  state.source = null;
}

function open(state) {
  if (state.ended || state.source) return;
  clearTimeout(state.timer);
  const source = new EventSource(address(state.path, state.params));
  state.source = source;
  source.onopen = () => {
    connected(true);
    state.tries = 0;
    state.handlers.open?.();
  };
  source.onerror = () => broken(state);
  for (const [name, handler] of Object.entries(state.handlers)) {
    if (name !== "open") source.addEventListener(name, (event) => heard(state, handler, event));
  }
}

function heard(state, handler, event) {
  if (event.lastEventId) state.params.after = event.lastEventId;
  handler(event.data ? JSON.parse(event.data) : {}, event.lastEventId);
}

// The browser would try again by itself, but not after an answer like 503, and without saying so.
function broken(state) {
  rest(state);
  if (state.ended || document.hidden) return;
  const wait = RETRY_MS[Math.min(state.tries++, RETRY_MS.length - 1)];
  if (state.tries > 1) connected(false);
  state.timer = setTimeout(() => retried(state), wait);
}

// A stream says nothing of why it broke; a plain question does (and meets the end of a session).
async function retried(state) {
  try {
    await get("me");
  } catch (error) {
    if (error.status === 0) return broken(state);
  }
  open(state);
}
