"""Browser sessions: short-lived, in place of the token.

They live in memory and end with the process. The cookie is random and kept as a hash only; with it
goes a second secret, which is told once, at sign-in, and sent back with every request: a browser gives
the cookie to all servers of the host, whatever their port, and the second secret to none of them.
A session ends with its token, and may do what the token may do now.
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
"""Of one token. The oldest is ended for a new one; nobody ends those of others."""
ID_BYTES = 32


class Session(msgspec.Struct):
    """One signed-in browser."""

    token: Token
    csrf: str
    until_s: float
    used_s: float
    over: bool = False
    """Whether it was ended: its person signed out, or in too often."""


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
        self._open: dict[str, Session] = {}
        self._lock = threading.Lock()

    def begin(self, token: Token) -> tuple[str, str]:
        """Begin a session, and return what the cookie carries, and the second secret."""
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
        """Return the session of a cookie while it holds."""
        session = self._open.get(_hash(secret))
        if session is None:
            return None
        if not self.holds(session):
            self.end(session)
            return None
        session.used_s = time.time()
        return session

    def holds(self, session: Session) -> bool:
        """Return whether a session is not over, and its token neither, which is looked at anew."""
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
    """Compare the second secret, in a time that does not depend on it."""
    return hmac.compare_digest(session.csrf.encode(), given.encode())


def cookie_in(header: str, name: str) -> str | None:
    """Return the value of one cookie of a header. What other servers of this host have set stands
    there too, and may be anything."""
    for part in header.split(";"):
        known, _, value = part.strip(" \t").partition("=")
        if known == name:
            return value
    return None


def set_cookie(name: str, value: str, *, secure: bool, life_s: float) -> str:
    """Return the header that sets the cookie, or with an empty value takes it away."""
    parts = [f"{name}={value}", "Path=/", "HttpOnly", "SameSite=Strict"]
    parts.append(f"Max-Age={max(0, round(life_s))}")
    if secure:
        parts.append("Secure")
    return "; ".join(parts)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
