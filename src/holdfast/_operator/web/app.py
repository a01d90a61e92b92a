"""The application: headers around the gate around the routes, and the pages.

    Headers → Gate → router → endpoint → a thread → the read model or an action → the store

Nothing on the way blocks the event loop: all calls of a store run in a thread.

Pages are shells without data. They and their files are a closed list, which is read and rendered
once, when the server starts. A request's path is matched exactly; it never reaches the file system.

A file is served under a path that contains a digest of all files: browsers cache it permanently,
and a release that changes a file has other paths. Modules import each other by relative paths, so a
page never mixes files of two releases.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as Endpoint, Router

from holdfast._operator.web import action_routes, event_streams, limits, openapi, read_routes
from holdfast._operator.web.access_tokens import Role, Tokens, Unusable
from holdfast._operator.web.browser_sessions import Sessions, Visitor
from holdfast._operator.web.gate import SAFE, Door, Front, Gate, nobody
from holdfast._operator.web.headers import KEPT, Application, Headers
from holdfast._operator.web.http_responses import Problem, answer, failure, refusal
from holdfast._operator.web.routes import Ask, Route, Site, body_of, query_of
from holdfast._stores.contract import Store
from holdfast.errors import HoldfastError

# -- pages --------------------------------------------------------------------------------------


HERE = Path(__file__).parent
PAGES = {
    "/": "runs.html",
    "/run": "run.html",
    "/pending": "pending.html",
    "/fleet": "fleet.html",
    "/trends": "trends.html",
    "/findings": "findings.html",
}
SIGN_IN = "sign-in.html"
OPEN_ASSETS = frozenset({"pages/sign-in.js", "page.css", "icon.svg"})
"""The files of the sign-in page. Like the page itself, they contain no data."""
DIGEST_CHARS = 20
_TYPES = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


class Page(msgspec.Struct, frozen=True):
    """A response that is the same for every visitor."""

    text: bytes
    type: str
    door: Door
    kept: bool = False
    """Whether its path contains a digest, so that a browser may cache it permanently."""


def pages() -> dict[str, Page]:
    """Return the page shells and their files, by path."""
    found = {path: Page(_rendered(name), _HTML, _PAGE) for path, name in PAGES.items()}
    for name, text in _files().items():
        opened = name in OPEN_ASSETS
        door = Door(None if opened else Role.VIEWER, empty=True, for_sign_in=opened)
        found[static(name)] = Page(text, _TYPES[Path(name).suffix], door, kept=True)
    return found


def static(name: str = "") -> str:
    """Return the path under which a file is served, or the path of the folder."""
    folder = f"/static/{digest(_files())}"
    return f"{folder}/{name}" if name else folder


def digest(files: dict[str, bytes]) -> str:
    """Return a digest of the paths and contents of these files."""
    found = hashlib.sha256()
    for name, text in sorted(files.items()):
        found.update(f"{name}\0{len(text)}\0".encode())
        found.update(text)
    return found.hexdigest()[:DIGEST_CHARS]


@functools.cache
def _files() -> dict[str, bytes]:
    return assets(HERE / "static")


def assets(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder and its subfolders, by their relative path. Links are not
    followed, and files of other types are omitted."""
    found: dict[str, bytes] = {}
    for entry in sorted(folder.iterdir()):
        if entry.is_symlink():
            continue
        if entry.is_dir():
            inside = assets(entry)
            found |= {f"{entry.name}/{name}": text for name, text in inside.items()}
        elif entry.suffix in _TYPES:
            found[entry.name] = entry.read_bytes()
    return found


def sign_in() -> bytes:
    """Return the page that asks for a token."""
    return _rendered(SIGN_IN)


def _rendered(name: str) -> bytes:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined, TemplateNotFound

    shells = Environment(
        loader=FileSystemLoader(HERE / "templates"), autoescape=True, undefined=StrictUndefined
    )
    try:
        return shells.get_template(name).render(static=static()).encode()
    except TemplateNotFound:
        return b"<!doctype html><title>Holdfast</title><p>This page is not there."


_HTML = "text/html; charset=utf-8"
_PAGE = Door(Role.VIEWER, page=True, empty=True)


# -- the application ----------------------------------------------------------------------------


READING_THREADS, ACTING_THREADS = 8, 8
"""Separate limits, so that decisions that wait for a process do not block reads."""

UNAUTHORISED = 401
CURSOR_DIGITS = 15

Called = Callable[[Request], Awaitable[Response]]


def routes() -> list[Route]:
    """Return all routes."""
    return [
        *read_routes.ROUTES,
        *event_streams.ROUTES,
        *action_routes.SIGN_IN_ROUTES,
        *action_routes.ROUTES,
        DESCRIPTION,
    ]


def _describe(_: Ask) -> dict[str, Any]:
    return openapi.describe(tuple(routes()))


DESCRIPTION = Route(
    "GET", openapi.PATH, Role.VIEWER, "This description.", _describe, dict[str, Any]
)


def application(
    store: Store,
    tokens: Tokens,
    front: Front,
    *,
    four_eyes: str | None = None,
    changes: event_streams.Changes | None = None,
) -> Application:
    """Return the application for one store."""
    wrong = limits.Rate(limits.WRONG_PER_S, limits.WRONG_BURST)
    site = Site(store, tokens, Sessions(tokens), front, limits.Failures(), wrong, four_eyes)
    files = pages()
    app = _Calls(site, changes or event_streams.Changes(store)).router(files)
    gate = Gate(app, front, doors(files), tokens, site.sessions, site.failures, sign_in())
    return Headers(gate)


def doors(files: dict[str, Page]) -> dict[tuple[str, str], Door]:
    """Return the requests that the gate accepts, by method and path; it refuses all others."""
    found: dict[tuple[str, str], Door] = {}
    for route in routes():
        for method in methods(route):
            found[method, route.path] = route.door
    for path, page in files.items():
        found |= {(method, path): page.door for method in SAFE}
    return found


def methods(route: Route) -> tuple[str, ...]:
    """Return the methods of a route: GET implies HEAD, except for a stream, which has no end."""
    return SAFE if route.method == "GET" and route.kind != "stream" else (route.method,)


def _page(page: Page) -> Called:
    headers = {"Cache-Control": KEPT.decode()} if page.kept else None

    async def send_page(_: Request) -> Response:
        return Response(page.text, headers=headers, media_type=page.type)

    return send_page


# -- one request -------------------------------------------------------------------------------


class _Calls:
    """Handles each request in a thread, and makes a response of the result."""

    def __init__(self, site: Site, changes: event_streams.Changes) -> None:
        self._site = site
        self._changes = changes
        self._streams = limits.Streams()
        self._turns = limits.Turns()
        self._limiters: dict[bool, anyio.CapacityLimiter] = {}

    def router(self, files: dict[str, Page]) -> Router:
        ends = [Endpoint(path, _page(page), methods=list(SAFE)) for path, page in files.items()]
        ends += [
            Endpoint(route.path, self._endpoint(route), methods=list(methods(route)))
            for route in routes()
        ]
        return Router(ends, redirect_slashes=False)

    def _endpoint(self, route: Route) -> Called:
        async def called(request: Request) -> Response:
            try:
                ask = await _read_request(self._site, route, request)
                acts = route.method not in SAFE
                if route.kind == "stream":
                    return self._streamed(ask, await self._in_thread(route.perform, ask))
                taking = self._turns.turn(ask.visitor.key) if route.heavy else nullcontext()
                async with taking:
                    response: Response = await self._in_thread(_performed, route, ask, acts=acts)
            except Problem as problem:
                if route.signs_in and problem.status == UNAUTHORISED:
                    return await _refused_token(self._site, problem, request)
                return refusal(problem)
            except Unusable as error:
                return refusal(nobody(error))
            except HoldfastError as error:
                return failure(error)
            if acts:
                self._site.kept.clear()
                self._changes.poke()
            return response

        return called

    async def _in_thread(self, function: Callable[..., Any], *args: Any, acts: bool = False) -> Any:
        limiter = self._limiters.get(acts)
        if limiter is None:  # Created here, because it belongs to the event loop.
            limiter = anyio.CapacityLimiter(ACTING_THREADS if acts else READING_THREADS)
            self._limiters[acts] = limiter
        return await anyio.to_thread.run_sync(function, *args, limiter=limiter)

    def _streamed(self, ask: Ask, told: Any) -> Response:
        who = ask.visitor.key
        self._streams.take(who)
        self._changes.start()

        async def events() -> AsyncIterator[bytes]:
            try:
                async for one in told.events(self._changes, self._in_thread):
                    yield one
            finally:
                self._streams.give_back(who)

        headers = {"X-Accel-Buffering": "no"}
        return StreamingResponse(events(), headers=headers, media_type="text/event-stream")


async def _read_request(site: Site, route: Route, request: Request) -> Ask:
    visitor: Visitor | None = request.scope["holdfast.visitor"]
    query = query_of(route, request.scope["query_string"])
    ask = Ask(
        site,
        visitor,
        query,
        etag=_if_match(request.headers.getlist("if-match")),
        last_event=_number(request.headers.get("last-event-id")),
    )
    if route.method not in SAFE:
        length = request.headers.get("content-length")
        ask.body = body_of(route, await limits.body(request.receive, length))
    if route.sees and ask.etag is None:
        raise Problem(
            400,
            "UsageError",
            'send the version of the run that you saw: If-Match: "…" (its `etag`)',
        )
    return ask


def _if_match(headers: list[str]) -> str | None:
    """Return the value of If-Match, without quotes. Refuse a malformed one: ignoring it would drop
    a precondition."""
    if not headers:
        return None
    text = headers[0].strip()
    if len(headers) > 1 or len(text) <= 2 or not text[0] == text[-1] == '"' or '"' in text[1:-1]:
        raise Problem(
            400, "UsageError", 'If-Match must be one string in quotes: "…" (the `etag` of a run)'
        )
    return text[1:-1]


def _number(header: str | None) -> int | None:
    """Return a cursor; None for a header that this server did not issue."""
    text = header or ""
    return int(text) if text.isdecimal() and len(text) <= CURSOR_DIGITS else None


async def _refused_token(site: Site, problem: Problem, request: Request) -> Response:
    try:
        address = str(request.scope["holdfast.address"])
        site.wrong.take(address)
        await site.failures.delay(address)
    except Problem as too_many:
        return refusal(too_many)
    return refusal(problem)


def _performed(route: Route, ask: Ask) -> Response:
    """Perform the request and encode the answer. Both run in a thread, because the answer may be
    large."""
    told = route.perform(ask)
    if route.kind == "text":
        return Response(told, media_type="text/plain; version=0.0.4; charset=utf-8")
    response = answer(told)
    for cookie in ask.cookies:
        response.headers.append("Set-Cookie", cookie)
    return response
