// Exchanges a token for a session. The token comes with the address, behind the #, where neither
// servers nor logs see it, and is taken out of the address at once; or from the field. What the server
// answers is the second half of the session; the cookie, which no script sees, is the first.
//
// Another site could lead somebody here with a token of its own, to have them act under its name. So
// a token that comes from another site is used only when that is asked for.
// @ts-check

const KEPT = "holdfast-session"; // The name by which session.js finds it.
const OFFERED = "holdfast-offered"; // A token that another site sent, from one load to the next.
const NO_STORAGE = "This browser keeps nothing for this page (site data is switched off); it has to.";
const form = document.getElementById("sign-in");
const field = /** @type {HTMLInputElement} */ (document.getElementById("token"));
const trouble = /** @type {HTMLElement} */ (document.getElementById("trouble"));

function taken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found !== null) history.replaceState(null, "", location.pathname + location.search);
  return found;
}

/** Exchange a token for a session and load the page again; returns what went wrong, if something
 *  did.
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

/** Whether another site led here: the server tells what the browser told it. */
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
  if (status === 401) return "This token is not valid here. It may have run out or been replaced.";
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

/** A browser does not send the cookie when another site leads here, though there may be a session:
 *  load the page again, from here. A token waits until somebody asks for it.
 *  @param {string | null} token */
function comeAgain(token) {
  if (token) sessionStorage.setItem(OFFERED, token);
  location.replace(location.pathname + location.search);
}

/** Take the token that waits, if there is one. */
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

// A page that is signed in takes only the exchange from here.
if (form) start();
