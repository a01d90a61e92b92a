// Exchanges a token for a session. The token comes with the address, behind the #, where neither
// servers nor logs see it, and is taken out of the address at once; or from the field. What the server
// answers is the second half of the session; the cookie, which no script sees, is the first.

const KEPT = "holdfast-session"; // The name by which session.js finds it.

const NO_STORAGE = "This browser keeps nothing for this page (site data is switched off); it has to.";
const form = document.getElementById("sign-in");
const field = document.getElementById("token");
const trouble = document.getElementById("trouble");

function taken() {
  const found = new URLSearchParams(location.hash.slice(1)).get("token");
  if (found !== null) history.replaceState(null, "", location.pathname + location.search);
  return found;
}

async function signIn(token) {
  trouble.textContent = "";
  try {
    const answer = await fetch("/api/v1/session", {
      method: "POST",
      credentials: "same-origin",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ token }),
    });
    if (answer.ok && kept((await answer.json()).csrf)) return location.reload();
    trouble.textContent = answer.ok ? NO_STORAGE : refusal(answer.status);
  } catch {
    trouble.textContent = "The server does not answer. Is holdfast ui still running?";
  }
  field.value = "";
  field.focus();
}

function kept(half) {
  try {
    localStorage.setItem(KEPT, half);
    return true;
  } catch {
    return false;
  }
}

function refusal(status) {
  if (status === 401) return "This token is not valid here. It may have run out or been replaced.";
  if (status === 429) return "Too many tries. Wait a moment, then try again.";
  return `The server refused it (${status}).`;
}

form.addEventListener("submit", (event) => {
  event.preventDefault();
  signIn(field.value.trim());
});
addEventListener("hashchange", () => {
  const token = taken();
  if (token) signIn(token);
});

const token = taken();
if (token) signIn(token);
