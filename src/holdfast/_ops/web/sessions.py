"""Sessions: what a browser has instead of the token, for a short time.

They live in memory and end with the process. The cookie is random and kept as a hash only; with it
goes a second secret, which scripts of the page read from `/api/v1/me` and send back with every
change, so that another site cannot make the browser act. A session ends with its token.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from http.cookies import CookieError, SimpleCookie

import msgspec

from holdfast._ops.tokens import Role, Token, Tokens

LIFE_S = 8 * 3600.0
IDLE_S = 3600.0
SESSIONS_MAX = 1000
ID_BYTES = 32


class Session(msgspec.Struct):
    """One signed-in browser."""

    token: Token
    csrf: str
    until_s: float
    used_s: float


class Visitor(msgspec.Struct, frozen=True):
    """Who asks: the token, the way, the place."""

    token: Token
    address: str
    session: Session | None = None

    @property
    def role(self) -> Role:
        """What it may do."""
        return Role.named(self.token.role)

    @property
    def actor(self) -> str:
        """What entries say of it: its name, and where it came from."""
        way = "api" if self.session is None else "page"
        return f"{self.token.name} ({way}, {self.address})"

    @property
    def key(self) -> str:
        """What its requests and streams are counted by."""
        return self.token.hash


class Sessions:
    """The sessions of this process."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._open: OrderedDict[str, Session] = OrderedDict()

    def begin(self, token: Token) -> tuple[str, str]:
        """Begin a session, and return what the cookie carries, and the second secret."""
        secret = secrets.token_urlsafe(ID_BYTES)
        now_s = time.time()
        until_s = min(now_s + LIFE_S, token.expires_at.timestamp())
        session = Session(token, secrets.token_urlsafe(ID_BYTES), until_s, now_s)
        self._open[_hash(secret)] = session
        while len(self._open) > SESSIONS_MAX:
            self._open.popitem(last=False)
        return secret, session.csrf

    def find(self, secret: str) -> Session | None:
        """Return the session of a cookie while it holds."""
        name = _hash(secret)
        session = self._open.get(name)
        if session is None:
            return None
        if not self.holds(session):
            del self._open[name]
            return None
        session.used_s = time.time()
        return session

    def holds(self, session: Session) -> bool:
        """Say whether a session is not over, and its token neither."""
        now_s = time.time()
        fresh = session.used_s + IDLE_S > now_s and session.until_s > now_s
        return fresh and self._tokens.still_holds(session.token)

    def end(self, session: Session) -> None:
        """End a session."""
        for name, known in list(self._open.items()):
            if known is session:
                del self._open[name]


def csrf_fits(session: Session, given: str) -> bool:
    """Compare the second secret, in a time that does not depend on it."""
    return hmac.compare_digest(session.csrf.encode(), given.encode())


def cookie_in(header: str, name: str) -> str | None:
    """Return the value of one cookie of a header."""
    try:
        found = SimpleCookie(header).get(name)
    except CookieError:
        return None
    return None if found is None else found.value


def set_cookie(name: str, value: str, *, secure: bool, life_s: float) -> str:
    """Return the header that sets the cookie, or with an empty value takes it away."""
    parts = [f"{name}={value}", "Path=/", "HttpOnly", "SameSite=Strict"]
    parts.append(f"Max-Age={max(0, round(life_s))}")
    if secure:
        parts.append("Secure")
    return "; ".join(parts)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
