// The second secret of a session. The cookie goes to every server of this host, whatever its port;
// what stands in localStorage belongs to this origin alone. Only both together are a session.

const NAME = "holdfast-session";

/** The header that carries it. */
export const HEADER = "X-Holdfast-CSRF";

/** Return the second secret, or null if this browser does not have it. */
export function secret() {
  try {
    return localStorage.getItem(NAME);
  } catch {
    return null;
  }
}

/** Forget it: the session is over. With `only`, unless another tab has a newer one by now. */
export function forget(only = null) {
  try {
    if (only === null || localStorage.getItem(NAME) === only) localStorage.removeItem(NAME);
  } catch {
    // Without storage there is nothing to forget.
  }
}
