// One stream of changes for all tabs that are looked at. Browsers open only six connections to one
// server: with a stream for each tab, the seventh would wait for ever.
//
// The tab that has the lock listens and tells the others; when it is hidden or closed, another of
// them gets the lock.
// @ts-check

import { connection, stream } from "./api.js";

/** @typedef {{ heard: () => void, channel: BroadcastChannel, leave: (() => void) | null }} Listening */

const NAME = "holdfast-changes";

/** Call `heard` when the store has changed, and when this tab is looked at again.
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

/** Wait for the lock, then listen for all, until this tab rests.
 *  @param {Listening} state */
async function lead(state) {
  if (state.leave) return;
  const waiting = new AbortController();
  state.leave = () => waiting.abort();
  try {
    await navigator.locks.request(NAME, { signal: waiting.signal }, () => listening(state));
  } catch {
    // It rests before it had the lock.
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
  // The others notice by themselves that the server is gone, if they ask.
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
