"""The transports: which requests are recorded, under which key, and how their answers are read."""

from __future__ import annotations

import functools
import importlib.util
import urllib.request
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterable, Iterator
from threading import Event, Lock
from typing import TYPE_CHECKING, Any, Literal, NoReturn, cast

import holdfast
from holdfast import Retry
from holdfast.adapters import as_effect, as_step, step_key
from holdfast.errors import UsageError
from holdfast.integrations._needs import needs
from holdfast.integrations._relay import Closed, Closer, arelay, relay
from holdfast.integrations._witness import tell
from holdfast.integrations.http.answered import Head, replayed
from holdfast.integrations.http.asked import digest_of, request_key, shown_url
from holdfast.integrations.http.exchange import (
    Exchange,
    Piece,
    Refused,
    Unrecorded,
    perform,
    perform_async,
)
from holdfast.integrations.http.redirects import Redirects, send, send_async
from holdfast.integrations.http.sent import library_of

_LIBRARIES = [name for name in ("httpx", "httpx2") if importlib.util.find_spec(name)]
for _library in _LIBRARIES or ["httpx"]:
    needs(_library, extra="http")

if TYPE_CHECKING:
    from types import AsyncGeneratorType

    import httpx
    import httpx2

    class _Transport(httpx.BaseTransport, httpx2.BaseTransport):
        def handle_request(self, request: Any) -> Any: ...

    class _AsyncTransport(httpx.AsyncBaseTransport, httpx2.AsyncBaseTransport):
        async def handle_async_request(self, request: Any) -> Any: ...
else:
    _MODULES = [importlib.import_module(name) for name in _LIBRARIES]
    _Transport = type("_Transport", tuple(it.BaseTransport for it in _MODULES), {})
    _AsyncTransport = type("_AsyncTransport", tuple(it.AsyncBaseTransport for it in _MODULES), {})

LINGER_S = 1.0
"""How long to wait for the rest of a stream: clients know its end before it arrives."""
MAX_BYTES = 64 * 1024 * 1024

Asks = Callable[[Any], bool]
Policy = Literal["hold", "retry", "fail"]


class _Rules:
    """The options of both transports, and their decisions."""

    def __init__(
        self,
        perform: Callable[..., Any],
        inner: Any,
        key: Callable[[Any], str],
        record: Asks | None,
        effects: Asks | None,
        on_doubt: Policy,
        headers: Iterable[str],
        max_bytes: int,
        *,
        trust_env: bool,
    ) -> None:
        if max_bytes < 1:
            raise UsageError(f"max_bytes={max_bytes!r}: a positive number")
        self.key = key
        self.redirects = Redirects()
        self._inner = inner
        self._proxies = proxies() if trust_env and inner is None else None
        self._made: dict[tuple[str, str | None], Any] = {}
        self._record = record
        self._effects = effects
        self._headers = frozenset(name.lower() for name in headers)
        self._max_bytes = max_bytes
        self._step = as_step(perform, name="http", unrecorded=("exchange",))
        self._effect = as_effect(
            perform,
            name="http",
            unrecorded=("exchange",),
            on_doubt=on_doubt,
            not_done_on=(Refused,),
            retry=Retry() if on_doubt == "retry" else None,
        )

    def passes(self, request: Any) -> bool:
        """Return whether a request is none of ours: outside a run, or part of a step."""
        run = holdfast.context.current_run()
        if run is None or run.step is not None:
            return True
        if self._record is not None and not self._record(request):
            return True
        tell()
        return False

    def inside(self, request: Any, kind: str) -> Any:
        """Return the transport that sends; by default one of the library of the request."""
        if self._inner is not None:
            return self._inner
        library = library_of(request)
        proxy = None if self._proxies is None else proxy_for(request.url, self._proxies)
        made = library.__name__, proxy
        if made not in self._made:
            self._made[made] = getattr(library, kind)(proxy=proxy)
        return self._made[made]

    @property
    def inners(self) -> list[Any]:
        """All sending transports, to close them."""
        return [*self._made.values()] if self._inner is None else [self._inner]

    def step(self, request: Any) -> Any:
        """Return the step or effect of a request."""
        return self._effect if self._effects and self._effects(request) else self._step

    def exchange(self, step: Any, inner: Any, request: Any, put: Any, left: Event) -> Exchange:
        """Return a request on its way."""
        is_effect = step is self._effect
        return Exchange(
            inner, self.redirects, request, put, self._max_bytes, self._headers, is_effect, left
        )


class _Sending:
    """One request on its way: its record, and the pieces of its answer seen so far."""

    def __init__(
        self, rules: _Rules, inner: Any, request: Any, put: Callable[[Piece], object], left: Event
    ) -> None:
        self._seen: list[Piece] = []
        self._put = put
        self._rules = rules
        self.step = rules.step(request)
        self.exchange = rules.exchange(self.step, inner, request, self._hand_on, left)
        self.asked = (request.method, shown_url(str(request.url)), digest_of(request))

    def _hand_on(self, piece: Piece) -> None:
        self._seen.append(piece)
        self._put(piece)

    def whole(self, answer: dict[str, Any]) -> list[Piece]:
        """Return all pieces, also of a recorded answer."""
        if self._seen:
            return self._seen
        head, body = replayed(answer)
        if not self.exchange.effect:
            self._rules.redirects.note(self.exchange.request, head)
        return [head, body]

    def unrecorded(self, unrecorded: Unrecorded) -> list[Piece]:
        """Return the pieces of an answer that is no outcome, or raise the error instead."""
        if unrecorded.error is not None:
            raise unrecorded.error from None
        return self._seen


class _OnlyBlocking:
    """The methods that an async client calls on its transport."""

    async def handle_async_request(self, request: Any) -> NoReturn:
        """Refuse the call, and name the transport to use."""
        raise UsageError(_FOR_ASYNC)

    async def __aenter__(self) -> NoReturn:
        raise UsageError(_FOR_ASYNC)

    async def __aexit__(self, *raised: object) -> None: ...

    async def aclose(self) -> None:
        """There is nothing to close."""


class _OnlyAwaited:
    """The methods that a blocking client calls on its transport."""

    def handle_request(self, request: Any) -> NoReturn:
        """Refuse the call, and name the transport to use."""
        raise UsageError(_FOR_SYNC)

    def __enter__(self) -> NoReturn:
        raise UsageError(_FOR_SYNC)

    def __exit__(self, *raised: object) -> None: ...

    def close(self) -> None:
        """There is nothing to close."""


_FOR_ASYNC = "DurableTransport is for Client; for AsyncClient use AsyncDurableTransport"
_FOR_SYNC = "AsyncDurableTransport is for AsyncClient; for Client use DurableTransport"


class DurableTransport(_OnlyBlocking, _Transport):
    """Makes every request of a client a step inside a run, for httpx and httpx2.

    `inner` sends; by default a plain `HTTPTransport()`, through the proxies that the environment
    names (`HTTP_PROXY`, `NO_PROXY` …; not with `trust_env=False`). Give a proxy to `inner`:
    `Client(transport=DurableTransport(), proxy=…)` would bypass the transport, and is refused.
    `key(request)` names a sequence of concurrent requests. `record(request)` selects the recorded
    ones (all). `effects(request)` selects the effects (none), with `on_doubt=` as their policy.
    `headers=` are recorded besides those that SDKs read. An answer of more than `max_bytes` is
    refused.
    """

    def __init__(
        self,
        inner: Any = None,
        *,
        key: Callable[[Any], str] = request_key,
        record: Asks | None = None,
        effects: Asks | None = None,
        on_doubt: Policy = "hold",
        headers: Iterable[str] = (),
        max_bytes: int = MAX_BYTES,
        trust_env: bool = True,
    ) -> None:
        self._rules = _Rules(
            perform,
            inner,
            key,
            record,
            effects,
            on_doubt,
            headers,
            max_bytes,
            trust_env=trust_env,
        )

    def handle_request(self, request: Any) -> Any:
        """Send a request, or return the recorded answer."""
        inner = self._rules.inside(request, "HTTPTransport")
        if self._rules.passes(request):
            return send(self._rules.redirects, inner, request)
        request.read()
        left, closer = Event(), Closer()
        pieces = relay(
            lambda put: self._recorded(inner, request, put, left),
            linger_s=LINGER_S,
            left=left,
            closer=closer,
        )
        head = cast("Head", next(pieces))
        return _response(request, head, "SyncByteStream", _Pieces, pieces, closer)

    def _recorded(
        self, inner: Any, request: Any, put: Callable[[Piece], object], left: Event
    ) -> list[Piece]:
        sending = _Sending(self._rules, inner, request, put, left)
        try:
            with step_key(self._rules.key(request)):
                return sending.whole(sending.step(*sending.asked, sending.exchange))
        except Unrecorded as unrecorded:
            return sending.unrecorded(unrecorded)

    def close(self) -> None:
        """Close the sending transport."""
        for inner in self._rules.inners:
            inner.close()


class AsyncDurableTransport(_OnlyAwaited, _AsyncTransport):
    """The awaited twin of `DurableTransport`, for `AsyncClient`."""

    def __init__(
        self,
        inner: Any = None,
        *,
        key: Callable[[Any], str] = request_key,
        record: Asks | None = None,
        effects: Asks | None = None,
        on_doubt: Policy = "hold",
        headers: Iterable[str] = (),
        max_bytes: int = MAX_BYTES,
        trust_env: bool = True,
    ) -> None:
        self._rules = _Rules(
            perform_async,
            inner,
            key,
            record,
            effects,
            on_doubt,
            headers,
            max_bytes,
            trust_env=trust_env,
        )

    async def handle_async_request(self, request: Any) -> Any:
        """Send a request, or return the recorded answer."""
        inner = self._rules.inside(request, "AsyncHTTPTransport")
        if self._rules.passes(request):
            return await send_async(self._rules.redirects, inner, request)
        await request.aread()
        left, closer = Event(), Closer()
        pieces = arelay(
            lambda put: self._recorded(inner, request, put, left),
            linger_s=LINGER_S,
            left=left,
            closer=closer,
        )
        head = cast("Head", await anext(pieces))
        return _response(request, head, "AsyncByteStream", _AsyncPieces, pieces, closer)

    async def _recorded(
        self, inner: Any, request: Any, put: Callable[[Piece], object], left: Event
    ) -> list[Piece]:
        sending = _Sending(self._rules, inner, request, put, left)
        try:
            with step_key(self._rules.key(request)):
                return sending.whole(await sending.step(*sending.asked, sending.exchange))
        except Unrecorded as unrecorded:
            return sending.unrecorded(unrecorded)

    async def aclose(self) -> None:
        """Close the sending transport."""
        for inner in self._rules.inners:
            await inner.aclose()


class _Pieces:
    """The rest of an answer, as a stream of the library. Any thread may close it."""

    def __init__(self, pieces: Generator[Piece], closer: Closer, closed: type[Exception]) -> None:
        self._pieces = pieces
        self._closer = closer
        self._closed = closed
        # Held inside the generator: closing one that another thread runs can crash the interpreter.
        self._inside = Lock()

    def __iter__(self) -> Iterator[bytes]:
        while True:
            with self._inside:
                try:
                    piece = next(self._pieces)
                except StopIteration:
                    return
                except Closed:
                    raise self._closed(_CLOSED) from None
            yield cast("bytes", piece)

    def close(self) -> None:
        if not self._inside.acquire(blocking=False):  # Another thread is reading it.
            self._closer.close()
            return
        try:
            self._pieces.close()
        finally:
            self._inside.release()


class _AsyncPieces:
    """The awaited twin of `_Pieces`."""

    def __init__(
        self, pieces: AsyncGenerator[Piece], closer: Closer, closed: type[Exception]
    ) -> None:
        self._pieces = pieces
        self._closer = closer
        self._closed = closed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._pieces:
                yield cast("bytes", piece)
        except Closed:
            raise self._closed(_CLOSED) from None

    async def aclose(self) -> None:
        if cast("AsyncGeneratorType[Piece, None]", self._pieces).ag_running:  # By another task.
            self._closer.close()
        else:
            await self._pieces.aclose()


_CLOSED = "the stream was closed while it was read"


def _response(
    request: Any, head: Head, stream: str, kind: type[Any], pieces: Any, closer: Closer
) -> Any:
    """Return an answer in the types of the request's library."""
    library = library_of(request)
    of_library = type(kind.__name__, (kind, getattr(library, stream)), {})
    return library.Response(
        head.status,
        headers=[(name.encode(), value.encode()) for name, value in head.headers],
        stream=of_library(pieces, closer, library.ReadError),
        extensions=head.extensions,
        request=request,
    )


# -- proxies -----------------------------------------------------------------------------------
# Proxies of the environment are used; a proxy that is given to a client is refused.
#
# A client with `proxy=` creates its own transport for it and never calls ours, so that nothing
# would be recorded, without a warning. A transport cannot detect that in these libraries, so the
# constructors of their clients are wrapped.


def proxies() -> dict[str, str]:
    """Return the proxies of the environment by scheme, as the libraries read them."""
    return urllib.request.getproxies()


def proxy_for(url: Any, proxies: dict[str, str]) -> str | None:
    """Return the proxy of a request, if any."""
    found = proxies.get(url.scheme) or proxies.get("all")
    if not found:
        return None
    place = url.host if url.port is None else f"{url.host}:{url.port}"
    if urllib.request.proxy_bypass(place):
        return None
    return found if "://" in found else f"http://{found}"


def refuse_proxies(client: Any, ours: type) -> None:
    """Make a class of clients refuse a proxy beside a durable transport."""
    made = client.__init__

    @functools.wraps(made)
    def checked(self: Any, *args: Any, **options: Any) -> None:
        proxied = options.get("proxy") is not None or options.get("proxies") is not None
        if proxied and isinstance(options.get("transport"), ours):
            kind = "HTTPTransport" if client.__name__ == "Client" else "AsyncHTTPTransport"
            library = client.__module__.partition(".")[0]
            raise UsageError(
                f"{client.__name__}(transport={ours.__name__}(…), proxy=…) would send every request "
                "past the transport, and record nothing; write "
                f"transport={ours.__name__}({library}.{kind}(proxy=…))"
            )
        made(self, *args, **options)

    client.__init__ = checked


for _library in _LIBRARIES:
    _module = importlib.import_module(_library)
    refuse_proxies(_module.Client, DurableTransport)
    refuse_proxies(_module.AsyncClient, AsyncDurableTransport)
