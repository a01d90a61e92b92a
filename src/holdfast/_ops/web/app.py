"""The application: headers around the gate around the routes.

    Headers → Gate → router → endpoint → a thread → the read model or an action → the store

Nothing on the way blocks the event loop: whatever asks a store does so in a thread.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import nullcontext
from typing import Any

import anyio
import anyio.to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route as Endpoint, Router

from holdfast._ops.tokens import Tokens, Unusable
from holdfast._ops.web import acting, limits, openapi, pages, reading, signing, streaming
from holdfast._ops.web.answers import Problem, answer, failure, refusal
from holdfast._ops.web.gate import SAFE, Door, Front, Gate, nobody
from holdfast._ops.web.headers import KEPT, Application, Headers
from holdfast._ops.web.pages import Page
from holdfast._ops.web.routes import Ask, Route, Site, body_of, query_of
from holdfast._ops.web.sessions import Sessions, Visitor
from holdfast._store.contract import Store
from holdfast.errors import HoldfastError

READING_THREADS, ACTING_THREADS = 8, 8
"""Kept apart, so that decisions that wait for a process do not keep anybody from looking."""

UNAUTHORISED = 401
CURSOR_DIGITS = 15

Called = Callable[[Request], Awaitable[Response]]


def routes() -> list[Route]:
    """Return the whole table."""
    return [
        *reading.ROUTES,
        *streaming.ROUTES,
        *signing.ROUTES,
        *acting.ROUTES,
        openapi.ROUTE,
    ]


def application(
    store: Store,
    tokens: Tokens,
    front: Front,
    *,
    four_eyes: str | None = None,
    changes: streaming.Changes | None = None,
) -> Application:
    """Return the application for one store."""
    wrong = limits.Rate(limits.WRONG_PER_S, limits.WRONG_BURST)
    site = Site(store, tokens, Sessions(tokens), front, limits.Failures(), wrong, four_eyes)
    files = pages.pages()
    app = _Calls(site, changes or streaming.Changes(store)).router(files)
    gate = Gate(app, front, doors(files), tokens, site.sessions, site.failures, pages.sign_in())
    return Headers(gate)


def doors(files: dict[str, Page]) -> dict[tuple[str, str], Door]:
    """Return what the gate lets through, by method and path; there is nothing else."""
    found: dict[tuple[str, str], Door] = {}
    for route in routes():
        for method in methods(route):
            found[method, route.path] = route.door
    for path, page in files.items():
        found |= {(method, path): page.door for method in SAFE}
    return found


def methods(route: Route) -> tuple[str, ...]:
    """Return the methods of a route: what can be read can be asked for without its body, but for a
    stream, which has no end."""
    return SAFE if route.method == "GET" and route.kind != "stream" else (route.method,)


def _page(page: Page) -> Called:
    headers = {"Cache-Control": KEPT.decode()} if page.kept else None

    async def shown(_: Request) -> Response:
        return Response(page.text, headers=headers, media_type=page.type)

    return shown


# -- one request -------------------------------------------------------------------------------


class _Calls:
    """Makes a call of each request, in a thread, and an answer of what it gives."""

    def __init__(self, site: Site, changes: streaming.Changes) -> None:
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
                ask = await _asked(self._site, route, request)
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
        if limiter is None:  # Made here, since it belongs to the event loop.
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


async def _asked(site: Site, route: Route, request: Request) -> Ask:
    visitor: Visitor | None = request.scope["holdfast.visitor"]
    query = query_of(route, request.scope["query_string"])
    ask = Ask(
        site,
        visitor,
        query,
        seen=_seen(request.headers.getlist("if-match")),
        last_event=_number(request.headers.get("last-event-id")),
    )
    if route.method not in SAFE:
        length = request.headers.get("content-length")
        ask.body = body_of(route, await limits.body(request.receive, length))
    if route.sees and ask.seen is None:
        raise Problem(
            400, "UsageError", 'say which version of the run you saw: If-Match: "…" (its `seen`)'
        )
    return ask


def _seen(headers: list[str]) -> str | None:
    """Return what If-Match says, without its quotes. One that cannot be read is refused: who sends it
    wants to be sure of something."""
    if not headers:
        return None
    text = headers[0].strip()
    if len(headers) > 1 or len(text) <= 2 or not text[0] == text[-1] == '"' or '"' in text[1:-1]:
        raise Problem(
            400, "UsageError", 'If-Match is one text in quotes: "…" (the `seen` of a run)'
        )
    return text[1:-1]


def _number(header: str | None) -> int | None:
    """Return a cursor; what is none of ours counts as none."""
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
    """Do what is asked, and write the answer, which may be large: so both are done in a thread."""
    told = route.perform(ask)
    if route.kind == "text":
        return Response(told, media_type="text/plain; version=0.0.4; charset=utf-8")
    response = answer(told)
    for cookie in ask.cookies:
        response.headers.append("Set-Cookie", cookie)
    return response
