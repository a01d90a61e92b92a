"""Inside the step: the request is sent, and each piece of the answer is handed on as it comes.

The twin functions differ in `await` alone. What is no outcome (an error on the way, a status that
asks to try again) leaves the step as `Unrecorded`: the step is cut short, and the client that sends the
same request again is in the same step again. So the journal has one step, with the answer that counts.
A reader who leaves an answer that counts has made a call of its own, `Left`: the same request sent again
is the next step, live and on replay.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from holdfast.errors import UsageError
from holdfast.integrations.http.answered import Head, head_of, is_final, outcome
from holdfast.integrations.http.asked import identify
from holdfast.integrations.http.usage import note_usage

Piece = Head | bytes
_TOO_MANY = 429


class Unrecorded(GeneratorExit):
    """What came is no outcome of the step. `error` is for the client; without one it has the answer."""

    def __init__(self, error: Exception | None = None) -> None:
        super().__init__(repr(error) if error else "an answer that asks to try again")
        self.error = error


class Left(GeneratorExit):
    """The reader has left an answer before its end. It is asked for again when the run is resumed."""

    again = False


class Unanswered(Exception):
    """An effect was sent and the answer does not say what came of it."""


class Refused(Exception):
    """An effect did not happen: there was no connection, or the other side had no time for it."""


@dataclass(frozen=True)
class Exchange:
    """One request on its way, and where its answer goes."""

    inner: Any
    request: Any
    put: Callable[[Piece], None]
    max_bytes: int
    headers: frozenset[str]
    effect: bool
    left: threading.Event

    def begin(self, response: Any) -> tuple[Head, _Body]:
        """Hand on the head of an answer."""
        head = head_of(response, self.headers)
        if not self.effect:
            self.put(head)
        return head, _Body(self)

    def ended(self, head: Head, body: bytes) -> dict[str, Any]:
        """Return what is recorded of an answer that came whole."""
        if not is_final(head.status):
            if self.effect:
                untaken = head.status == _TOO_MANY
                raise (Refused if untaken else Unanswered)(f"{self.shown}: status {head.status}")
            raise Unrecorded
        note_usage(dict(head.headers).get("content-type", ""), body)
        return outcome(head, body)

    def failed(self, error: Exception) -> BaseException:
        """Return what an error on the way means."""
        if not self.effect:
            return Unrecorded(error)
        unsent = type(error).__name__ in ("ConnectError", "ConnectTimeout", "PoolTimeout")
        return (Refused if unsent else Unanswered)(f"{self.shown}: {error!r}")

    def cut(self, head: Head | None, error: BaseException) -> BaseException:
        """Return what it means that an answer did not come whole."""
        if head is not None and is_final(head.status) and self.left.is_set():
            return Left()
        return self.failed(error) if isinstance(error, Exception) else error

    @property
    def shown(self) -> str:
        return f"{self.request.method} {self.request.url.host}"


class _Body:
    """The pieces of a body, up to a limit."""

    def __init__(self, exchange: Exchange) -> None:
        self._exchange = exchange
        self._pieces: list[bytes] = []
        self._left = exchange.max_bytes

    def add(self, piece: bytes) -> None:
        self._left -= len(piece)
        if self._left < 0:
            raise UsageError(
                f"the answer to {self._exchange.shown} has more than {self._exchange.max_bytes} "
                "bytes, too many to be recorded; give the transport a larger max_bytes=, or leave "
                "such requests out with record="
            )
        self._pieces.append(piece)
        if not self._exchange.effect:
            self._exchange.put(piece)

    def whole(self) -> bytes:
        return b"".join(self._pieces)


def perform(method: str, url: str, digest: str, exchange: Exchange) -> dict[str, Any]:  # noqa: ARG001 - recorded
    """Send the request: the body of the step."""
    identify(exchange.request)
    head: Head | None = None
    try:
        response = exchange.inner.handle_request(exchange.request)
        try:
            head, body = exchange.begin(response)
            for piece in response.iter_bytes():
                body.add(piece)
        finally:
            response.close()
    except BaseException as error:
        if (cut := exchange.cut(head, error)) is error:
            raise
        raise cut from error
    return exchange.ended(head, body.whole())


async def perform_async(
    method: str,  # noqa: ARG001 - recorded
    url: str,  # noqa: ARG001
    digest: str,  # noqa: ARG001
    exchange: Exchange,
) -> dict[str, Any]:
    """Send the request: the body of the step, awaited."""
    identify(exchange.request)
    head: Head | None = None
    try:
        response = await exchange.inner.handle_async_request(exchange.request)
        try:
            head, body = exchange.begin(response)
            async for piece in response.aiter_bytes():
                body.add(piece)
        finally:
            await response.aclose()
    except BaseException as error:
        if (cut := exchange.cut(head, error)) is error:
            raise
        raise cut from error
    return exchange.ended(head, body.whole())
