// The second secret of a session. The browser sends the cookie to every server of this host, on any
// port; localStorage belongs to this origin only. A session needs both.
// @ts-check

const NAME = "holdfast-session";
const OFFERED = "holdfast-offered";

/** The header with the second secret. */
export const HEADER = "X-Holdfast-CSRF";

/** Take the token from another site that sign-in.js stored; null if there is none. */
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

/** Remove the second secret, because the session has ended. With `only`, keep a newer one of
 *  another tab.
 *  @param {string | null} only */
export function forget(only = null) {
  try {
    if (only === null || localStorage.getItem(NAME) === only) localStorage.removeItem(NAME);
  } catch {
    // Without storage there is nothing to remove.
  }
}
