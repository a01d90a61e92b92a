"""The gate: every request passes its checks before routing, and is refused by default.

    the Host is one of ours      else 421
    the path is one of the few without data, or a token or session is valid    else 401
    of a session: its second secret too, unless it asks for an empty page      else 401
    the route exists, for this method, and the role is enough                  else 404, 405, 403
    not sent by another site     else 403
    except GET and HEAD: the body is JSON, and a session sends Origin or Sec-Fetch-Site        else
    415, 403

Paths are compared as sent, byte by byte; nothing is decoded, joined or normalized, so no other
spelling of a path matches.
"""

from __future__ import annotations

import ipaddress
import logging
from collections.abc import Mapping

import msgspec
from starlette.responses import Response

from holdfast._operator.web import limits
from holdfast._operator.web.access_tokens import Role, Tokens, Unusable
from holdfast._operator.web.browser_sessions import Session, Sessions, Visitor, cookie_in, csrf_fits
from holdfast._operator.web.headers import Application, Receive, Scope, Send
from holdfast._operator.web.http_responses import Problem, refusal

SAFE = ("GET", "HEAD")
logger = logging.getLogger("holdfast.web")
OWN_SITE = ("same-origin", "none")
SITES = (*OWN_SITE, "same-site", "cross-site")


class Front(msgspec.Struct, frozen=True):
    """The addresses by which the page is reached."""

    hosts: frozenset[str]
    origins: frozenset[str]
    secure: bool
    """Whether browsers connect over TLS."""
    cookie: str
    proxied: bool = False
    """Whether a configured proxy reports the client address of a request."""
    proxies: frozenset[str] = frozenset()
    """The addresses of the proxy, if it is not on this machine."""


class Door(msgspec.Struct, frozen=True):
    """The properties of a route that the gate checks."""

    role: Role | None
    """None: it has no data and needs no credential."""
    page: bool = False
    """Whether a person opens it in a browser: without a session, the sign-in page is shown."""
    empty: bool = False
    """Whether it is the same for every visitor and has no data: the cookie alone is enough."""
    signs_in: bool = False
    """Whether its body is the credential."""
    for_sign_in: bool = False
    """Whether sign-in needs it: it is never refused because of the rate of other visitors."""


class Gate:
    """Pure ASGI, for HTTP and WebSocket."""

    def __init__(
        self,
        app: Application,
        front: Front,
        doors: Mapping[tuple[str, str], Door],
        tokens: Tokens,
        sessions: Sessions,
        failures: limits.Failures,
        sign_in: bytes,
    ) -> None:
        self._app = app
        self._front = front
        self._doors = doors
        self._paths = {path for _, path in doors}
        self._tokens = tokens
        self._sessions = sessions
        self._sign_in = sign_in
        self._rate = limits.Rate()
        self._strangers = limits.Rate()
        self._failures = failures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        try:
            scope["holdfast.address"] = address_of(scope, _Headers(scope), self._front)
            scope["holdfast.visitor"] = await self._checked(scope)
        except Problem as problem:
            await self._refuse(problem, scope, receive, send)
        except Unusable as error:
            await self._refuse(nobody(error), scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _refuse(self, problem: Problem, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": 1008})
            return
        answer = refusal(problem)
        door = self._doors.get((_method(scope), _path(scope)))
        if problem.status == 401:
            if door is not None and door.page:
                answer = Response(_told_site(self._sign_in, scope), 401, media_type="text/html")
            answer.headers["WWW-Authenticate"] = "Bearer"
        await answer(scope, receive, send)

    # -- the checks, in this order -------------------------------------------------------------

    async def _checked(self, scope: Scope) -> Visitor | None:
        headers = _Headers(scope)
        address = str(scope["holdfast.address"])
        self._check_host(headers)
        door = self._doors.get((_method(scope), _path(scope)))
        if door is not None and door.role is None:
            if not door.signs_in:
                if not door.for_sign_in:
                    self._strangers.take(address)
                return None
            self._check_site(headers, door)
            _check_json(headers)
            _check_has_site(headers)
            return None
        visitor = await self._visitor(headers, address, door)
        self._rate.take(visitor.key)
        if visitor.session is not None and not (door is not None and door.empty):
            _check_whole(headers, visitor.session)
        door = self._check_route(scope, door)
        if visitor.role < (door.role or Role.ADMIN):
            raise Problem(
                403, "NotAllowed", f"this requires the role {(door.role or Role.ADMIN).word}"
            )
        self._check_site(headers, door)
        if _method(scope) not in SAFE:
            _check_json(headers)
            if visitor.session is not None:
                _check_has_site(headers)
        return visitor

    def _check_host(self, headers: _Headers) -> None:
        hosts = headers.all("host")
        if len(hosts) != 1 or hosts[0] not in self._front.hosts:
            raise Problem(421, "WrongHost", "the Host header does not name this server")

    async def _visitor(self, headers: _Headers, address: str, door: Door | None) -> Visitor:
        given = headers.all("authorization")
        if given:
            scheme, _, secret = given[0].partition(" ")
            token = None
            if len(given) == 1 and scheme.lower() == "bearer":
                token = self._tokens.verify(secret)
            if token is None:
                await self._failures.delay(address)
                raise unauthorised()
            self._failures.forget(address)
            return Visitor(token, address)
        secret = cookie_in("; ".join(headers.all("cookie")), self._front.cookie) or ""
        session = self._sessions.find(secret) if secret else None
        if session is None:
            if door is None or not door.page:
                self._strangers.take(address)
            raise unauthorised()
        return Visitor(session.token, address, session)

    def _check_route(self, scope: Scope, door: Door | None) -> Door:
        if door is None or scope["type"] == "websocket":
            if _path(scope) in self._paths:
                raise Problem(405, "WrongMethod", "this path does not allow this method")
            raise Problem(404, "NoSuchPath", "there is no such path")
        return door

    def _check_site(self, headers: _Headers, door: Door) -> None:
        """Refuse requests that another site makes a browser send. Links to a page are allowed: a
        page has no data."""
        origins = headers.all("origin")
        if any(origin not in self._front.origins for origin in origins):
            raise Problem(403, "OtherOrigin", "another site has sent this")
        sites = headers.all("sec-fetch-site")
        followed = door.page and headers.all("sec-fetch-mode") == ["navigate"]
        if any(site not in OWN_SITE for site in sites) and not followed:
            raise Problem(403, "OtherOrigin", "another site has sent this")


def _told_site(page: bytes, scope: Scope) -> bytes:
    """Pass the browser's Sec-Fetch-Site value to the sign-in page: it must not use a token in the
    address without asking if another site put it there."""
    said = _Headers(scope).all("sec-fetch-site")
    site = said[0] if len(said) == 1 and said[0] in SITES else ""
    return page.replace(b'data-site=""', f'data-site="{site}"'.encode())


def nobody(error: Unusable) -> Problem:
    """Return the refusal of all requests, because no credential can be checked."""
    logger.error("all requests are refused: %s", error)
    return Problem(503, "NoTokens", f"all requests are refused: {error.why}")


def unauthorised() -> Problem:
    """Return the refusal of a request without a valid credential."""
    return Problem(401, "NotSignedIn", "this requires a token (Authorization: Bearer) or a session")


def _check_json(headers: _Headers) -> None:
    given = headers.all("content-type")
    kind = given[0].partition(";")[0].strip().lower() if len(given) == 1 else ""
    if kind != "application/json":
        raise Problem(
            415, "WrongType", "a request that changes something must be sent as application/json"
        )


def _check_has_site(headers: _Headers) -> None:
    """Require the origin that a browser sends, for requests that use or obtain a cookie."""
    if not headers.all("origin") and not headers.all("sec-fetch-site"):
        raise Problem(
            403, "OtherOrigin", "the request does not name the site that sent it (Origin)"
        )


def _check_whole(headers: _Headers, session: Session) -> None:
    """Require the second secret. The cookie alone is not enough: a browser sends it to every server
    of the host, on any port, and other pages of the host can make it do so."""
    given = headers.all("x-holdfast-csrf")
    if len(given) != 1 or not csrf_fits(session, given[0]):
        why = "the session's second secret is missing (X-Holdfast-CSRF); sign in again"
        raise Problem(401, "SessionIncomplete", why)


# -- request data ------------------------------------------------------------------------------


class _Headers:
    """The headers of a request, with all values of each."""

    def __init__(self, scope: Scope) -> None:
        self._values: dict[str, list[str]] = {}
        for name, value in scope["headers"]:
            self._values.setdefault(name.decode("latin-1").lower(), []).append(
                value.decode("latin-1")
            )

    def all(self, name: str) -> list[str]:
        return self._values.get(name, [])


def _method(scope: Scope) -> str:
    return "WEBSOCKET" if scope["type"] == "websocket" else str(scope["method"])


def _path(scope: Scope) -> str:
    """Return the path as sent."""
    raw: bytes = scope.get("raw_path") or str(scope["path"]).encode()
    return raw.decode("latin-1")


def address_of(scope: Scope, headers: _Headers, front: Front) -> str:
    """Return the client address of a request: its peer, or the address that the configured proxy
    reports."""
    client = scope.get("client")
    peer = str(client[0]) if client and client[0] else "socket"
    said = ",".join(headers.all("x-forwarded-for")).rpartition(",")[2].strip()
    if front.proxied and said and _is_proxy(peer, front):
        try:
            return str(ipaddress.ip_address(said))
        except ValueError:
            return peer
    return peer


def _is_proxy(peer: str, front: Front) -> bool:
    """Return whether a peer may report client addresses: it is on this machine or configured as a
    proxy."""
    try:
        address = ipaddress.ip_address(peer)
    except ValueError:
        return True  # A Unix socket, which only its owner can use.
    mapped = getattr(address, "ipv4_mapped", None) or address
    return mapped.is_loopback or str(mapped) in front.proxies
