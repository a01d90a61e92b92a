// One stream of changes for all visible tabs. Browsers open only six connections to one server:
// with a stream for each tab, the seventh would wait forever.
//
// The tab that has the lock listens and notifies the others; when it is hidden or closed, another
// tab gets the lock.
// @ts-check

import { connection, stream } from "./api.js";

/** @typedef {{ heard: () => void, channel: BroadcastChannel, leave: (() => void) | null }} Listening */

const NAME = "holdfast-changes";

/** Call `heard` when the store has changed, and when this tab becomes visible again.
 *  @param {() => void} heard */
export function changes(heard) {
  if (!navigator.locks) {
    stream("changes", {}, { change: heard, open: heard });
    return;
  }
  const channel = new BroadcastChannel(NAME);
  channel.addEventListener("message", heard);
  const state = { heard, channel, leave: null };
  const look = () => {
    if (document.hidden) return rest(state);
    heard();
    lead(state);
  };
  document.addEventListener("visibilitychange", look);
  addEventListener("pagehide", () => rest(state));
  addEventListener("pageshow", (event) => event.persisted && look());
  if (!document.hidden) lead(state);
}

/** Wait for the lock, then listen for all tabs, until this tab is hidden.
 *  @param {Listening} state */
async function lead(state) {
  if (state.leave) return;
  const waiting = new AbortController();
  state.leave = () => waiting.abort();
  try {
    await navigator.locks.request(NAME, { signal: waiting.signal }, () => listening(state));
  } catch {
    // It was hidden before it got the lock.
  }
}

/**
 * @param {Listening} state
 * @returns {Promise<void>}
 */
function listening(state) {
  const tell = () => {
    state.channel.postMessage("changed");
    state.heard();
  };
  const close = stream("changes", {}, { change: tell, open: tell });
  // The other tabs notice a lost server with their own requests.
  connection.addEventListener("lost", tell);
  return new Promise((done) => {
    state.leave = () => {
      close();
      connection.removeEventListener("lost", tell);
      done();
    };
  });
}

/** @param {Listening} state */
function rest(state) {
  state.leave?.();
  state.leave = null;
}
