"""Short-lived browser sessions, which replace the token after sign-in.

Sessions are kept in memory and end with the process. The cookie is random and stored as a hash
only. A second secret is returned once, at sign-in, and must be sent with every request: a browser
sends the cookie to all servers of the host, on any port, but not the second secret. A session ends
with its token and has the token's current role.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import threading
import time

import msgspec

from holdfast._operator.web.access_tokens import Role, Token, Tokens

LIFE_S = 8 * 3600.0
IDLE_S = 3600.0
SESSIONS_EACH = 20
"""The limit for each token. A new session ends the oldest one of the same token."""
ID_BYTES = 32


class Session(msgspec.Struct):
    """One signed-in browser."""

    token: Token
    csrf: str
    until_s: float
    used_s: float
    over: bool = False
    """Whether it was ended, by a sign-out or by too many sign-ins."""


class Visitor(msgspec.Struct, frozen=True):
    """The sender of a request: token, session and address."""

    token: Token
    address: str
    session: Session | None = None

    @property
    def role(self) -> Role:
        """The role of its token."""
        return Role.named(self.token.role)

    @property
    def actor(self) -> str:
        """The actor in journal entries: the token's name, the way and the address."""
        way = "api" if self.session is None else "page"
        return f"{self.token.name} ({way}, {self.address})"

    @property
    def key(self) -> str:
        """The key by which its requests and streams are counted."""
        return self.token.hash


class Sessions:
    """The sessions of this process."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._open: dict[str, Session] = {}
        self._lock = threading.Lock()

    def begin(self, token: Token) -> tuple[str, str]:
        """Begin a session, and return the value of the cookie and the second secret."""
        secret = secrets.token_urlsafe(ID_BYTES)
        now_s = time.time()
        until_s = min(now_s + LIFE_S, token.expires_at.timestamp())
        session = Session(token, secrets.token_urlsafe(ID_BYTES), until_s, now_s)
        with self._lock:
            self._tidy()
            same = [it for it in self._open.values() if it.token.hash == token.hash]
            for one in same[: len(same) - SESSIONS_EACH + 1]:
                self._end(one)
            self._open[_hash(secret)] = session
        return secret, session.csrf

    def find(self, secret: str) -> Session | None:
        """Return the session of a cookie while it is valid."""
        session = self._open.get(_hash(secret))
        if session is None:
            return None
        if not self.holds(session):
            self.end(session)
            return None
        session.used_s = time.time()
        return session

    def holds(self, session: Session) -> bool:
        """Return whether a session is still valid; its token is checked again."""
        if session.over or not _fresh(session):
            return False
        token = self._tokens.current(session.token)
        if token is None:
            return False
        session.token = token
        return True

    def end(self, session: Session) -> None:
        """End a session, and the streams that it has open."""
        with self._lock:
            self._end(session)

    def _end(self, session: Session) -> None:
        session.over = True
        self._open = {name: it for name, it in self._open.items() if it is not session}

    def _tidy(self) -> None:
        for session in list(self._open.values()):
            if not _fresh(session):
                self._end(session)


def _fresh(session: Session) -> bool:
    now_s = time.time()
    return session.used_s + IDLE_S > now_s and session.until_s > now_s


def csrf_fits(session: Session, given: str) -> bool:
    """Compare the second secret in constant time."""
    return hmac.compare_digest(session.csrf.encode(), given.encode())


def cookie_in(header: str, name: str) -> str | None:
    """Return the value of one cookie of a header, which may also contain arbitrary cookies of other
    servers of this host."""
    for part in header.split(";"):
        known, _, value = part.strip(" \t").partition("=")
        if known == name:
            return value
    return None


def set_cookie(name: str, value: str, *, secure: bool, life_s: float) -> str:
    """Return the header that sets the cookie, or removes it if the value is empty."""
    parts = [f"{name}={value}", "Path=/", "HttpOnly", "SameSite=Strict"]
    parts.append(f"Max-Age={max(0, round(life_s))}")
    if secure:
        parts.append("Secure")
    return "; ".join(parts)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
