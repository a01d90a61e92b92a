// The second secret of a session. The cookie goes to every server of this host, whatever its port;
// what stands in localStorage belongs to this origin alone. Only both together are a session.
// @ts-check

const NAME = "holdfast-session";
const OFFERED = "holdfast-offered";

/** The header that carries it. */
export const HEADER = "X-Holdfast-CSRF";

/** Take the token that sign-in.js left because another site had sent it; null if there is none. */
export function offered() {
  try {
    const found = sessionStorage.getItem(OFFERED);
    sessionStorage.removeItem(OFFERED);
    return found;
  } catch {
    return null;
  }
}

/** Return the second secret, or null if this browser does not have it. */
export function secret() {
  try {
    return localStorage.getItem(NAME);
  } catch {
    return null;
  }
}

/** Forget it: the session is over. With `only`, unless another tab has a newer one by now.
 *  @param {string | null} only */
export function forget(only = null) {
  try {
    if (only === null || localStorage.getItem(NAME) === only) localStorage.removeItem(NAME);
  } catch {
    // Without storage there is nothing to forget.
  }
}
