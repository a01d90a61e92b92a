"""The table of routes: path, role, request and response of each. The gate, the router and the
OpenAPI description are generated from it.

A route has an exact path. Ids are in the query, never in the path, because they may contain any
character.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import parse_qsl

import msgspec

from holdfast._operator.web.access_tokens import Role, Tokens
from holdfast._operator.web.browser_sessions import Session, Sessions, Visitor
from holdfast._operator.web.gate import Door, Front
from holdfast._operator.web.http_responses import Problem
from holdfast._operator.web.limits import Failures, Rate
from holdfast._stores.contract import Store

QUERY_FIELDS_MAX = 50
API = "/api/v1"

T = TypeVar("T")


class Nothing(msgspec.Struct, forbid_unknown_fields=True):
    """No parameters, or an empty body."""


class Site(msgspec.Struct, frozen=True):
    """The state that all requests share."""

    store: Store
    tokens: Tokens
    sessions: Sessions
    front: Front
    failures: Failures
    wrong: Rate
    """Wrong tokens at sign-in."""
    four_eyes: str | None = None
    """The tag of a run that names who started it; that actor may not approve."""
    kept: dict[str, tuple[float, Any]] = {}
    """Cached results of the store, with their times."""
    asking: threading.Lock = msgspec.field(default_factory=threading.Lock)

    def fresh(self, name: str, seconds: float, ask: Callable[[], T]) -> T:
        """Return a cached result that is not older than this; otherwise compute it, once for all
        requests."""
        with self.asking:
            known = self.kept.get(name)
            if known is None or time.monotonic() - known[0] > seconds:
                known = self.kept[name] = (time.monotonic(), ask())
        answer: T = known[1]
        return answer


class Ask(msgspec.Struct):
    """A checked and parsed request."""

    site: Site
    who: Visitor | None
    """None where no credential is needed."""
    query: Any
    body: Any = None
    etag: str | None = None
    """The value of If-Match."""
    last_event: int | None = None
    """The value of Last-Event-ID."""
    cookies: list[str] = []
    """Headers that set cookies, written by the route."""

    @property
    def store(self) -> Store:
        """The store of the request."""
        return self.site.store

    @property
    def visitor(self) -> Visitor:
        """The sender of the request."""
        assert self.who is not None
        return self.who

    @property
    def actor(self) -> str:
        """The actor to record in the journal."""
        return self.visitor.actor

    @property
    def session(self) -> Session | None:
        """The session, if a browser sent the request."""
        return self.visitor.session

    @property
    def ended(self) -> bool:
        """Whether the session has ended since the request began."""
        return self.session is not None and self.session.over


class Route(msgspec.Struct, frozen=True):
    """One method of one path. `perform` may block; it runs in a thread."""

    method: str
    path: str
    role: Role | None
    summary: str
    perform: Callable[[Ask], Any]
    answer: Any
    query: type[msgspec.Struct] = Nothing
    body: type[msgspec.Struct] | None = None
    sees: bool = False
    """Whether it needs `If-Match`: the version of the run that the decision was made on."""
    kind: str = "json"
    """The type of its response: json, stream or text."""
    signs_in: bool = False
    heavy: bool = False
    """Whether it may read much data: a visitor can run only a few of these at the same time."""

    @property
    def door(self) -> Door:
        """The properties that the gate checks."""
        return Door(self.role, signs_in=self.signs_in)


def query_of(route: Route, text: bytes) -> msgspec.Struct:
    """Return the parameters of a request; unknown ones are refused."""
    try:
        pairs = parse_qsl(
            text.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=bool(text),
            max_num_fields=QUERY_FIELDS_MAX,
            errors="strict",
        )
    except ValueError:
        raise Problem(400, "UsageError", "the query string cannot be parsed") from None
    lists = {
        field.encode_name
        for field in msgspec.structs.fields(route.query)
        if field.default_factory is list
    }
    given: dict[str, Any] = {}
    for name, value in pairs:
        if name in lists:
            given.setdefault(name, []).append(value)
        elif name in given:
            raise Problem(400, "UsageError", f"{name!r} is given twice")
        else:
            given[name] = value
    try:
        return msgspec.convert(given, route.query, strict=False)
    except msgspec.MsgspecError as error:
        raise Problem(400, "UsageError", f"the query is invalid: {error}") from None


def body_of(route: Route, text: bytes) -> msgspec.Struct | None:
    """Return the body of a request."""
    if route.body is None:
        return None
    try:
        return msgspec.json.decode(text or b"{}", type=route.body)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise Problem(400, "UsageError", f"the body is invalid: {error}") from None
