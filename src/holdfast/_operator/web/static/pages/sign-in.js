// Exchanges a token for a session. The token is in the field, or in the fragment of the address,
// which neither servers nor logs see; it is removed from the address at once. The server answers
// with the second half of the session; the first is the cookie, which scripts cannot read.
//
// Another site could link here with its own token, so that the user acts under its name. So a token
// from another site is used only after a confirmation.
// @ts-check

const KEPT = "holdfast-session"; // The key that session.js reads.
const OFFERED = "holdfast-offered"; // The key of a token from another site, kept until the next load.
const NO_STORAGE = "This browser stores no data for this page. Enable site data to sign in.";
const form = document.getElementById("sign-in");
const field = /** @type {HTMLInputElement} */ (document.getElementById("token"));
const trouble = /** @type {HTMLElement} */ (document.getElementById("trouble"));

function taken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found !== null) history.replaceState(null, "", location.pathname + location.search);
  return found;
}

/** Exchange a token for a session and reload the page; returns the error message, if any.
 *  @param {string} token */
export async function exchange(token) {
  try {
    const answer = await fetch("/api/v1/session", {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token }),
    });
    if (!answer.ok) return refusal(answer.status);
    if (!kept((await answer.json()).csrf)) return NO_STORAGE;
    location.reload();
    return "";
  } catch {
    return "The server does not answer. Is holdfast ui still running?";
  }
}

/** @param {string} token */
async function signIn(token) {
  trouble.textContent = "";
  const wrong = await exchange(token);
  if (!wrong) return;
  trouble.textContent = wrong;
  field.value = "";
  field.focus();
}

/** Whether another site linked here: the server passes on the browser's Sec-Fetch-Site. */
function isFromElsewhere() {
  const site = document.body.dataset.site;
  if (site === "cross-site" || site === "same-site") return true;
  return document.referrer !== "" && new URL(document.referrer).origin !== location.origin;
}

/** @param {string} token */
function offer(token) {
  const place = /** @type {HTMLElement} */ (document.getElementById("offered"));
  place.hidden = false;
  document.getElementById("use-offered")?.addEventListener("click", () => signIn(token));
}

/** @param {string} half */
function kept(half) {
  try {
    localStorage.setItem(KEPT, half);
    return true;
  } catch {
    return false;
  }
}

/** @param {number} status */
function refusal(status) {
  if (status === 401) return "This token is not valid here. It may have expired or been replaced.";
  if (status === 429) return "Too many tries. Wait a moment, then try again.";
  return `The server refused it (${status}).`;
}

function start() {
  form?.addEventListener("submit", (event) => {
    event.preventDefault();
    signIn(field.value.trim());
  });
  addEventListener("hashchange", () => {
    const token = taken();
    if (token) signIn(token);
  });
  const [token, before] = [taken(), offered()];
  if (isFromElsewhere() && isKept()) comeAgain(token);
  else if (token && !isFromElsewhere()) signIn(token);
  else if (token || before) offer(token || before || "");
}

/** Reload the page from here: a browser does not send the cookie on a link from another site,
 *  although there may be a session. A token is kept until the user confirms it.
 *  @param {string | null} token */
function comeAgain(token) {
  if (token) sessionStorage.setItem(OFFERED, token);
  location.replace(location.pathname + location.search);
}

/** Take the kept token, if there is one. */
function offered() {
  try {
    const found = sessionStorage.getItem(OFFERED);
    sessionStorage.removeItem(OFFERED);
    return found;
  } catch {
    return null;
  }
}

function isKept() {
  try {
    return localStorage.getItem(KEPT) !== null;
  } catch {
    return false;
  }
}

// A signed-in page uses only `exchange` of this module.
if (form) start();
