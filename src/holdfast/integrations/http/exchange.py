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
from holdfast.integrations._relay import Left
from holdfast.integrations.http.answered import Head, head_of, is_final, outcome
from holdfast.integrations.http.endings import ends_with_connection, is_cut
from holdfast.integrations.http.failures import for_client, is_unsent, told
from holdfast.integrations.http.redirects import Redirects, send, send_async
from holdfast.integrations.http.sent import identified, library_of
from holdfast.integrations.http.usage import note_usage

Piece = Head | bytes
_TOO_MANY = 429


class Unrecorded(GeneratorExit):
    """What came is no outcome of the step. `error` is for the client; without one it has the answer."""

    def __init__(self, why: str, error: Exception | None = None) -> None:
        super().__init__(why)
        self.error = error


class Unanswered(Exception):
    """An effect was sent and the answer does not say what came of it."""


class Refused(Exception):
    """An effect did not happen: there was no connection, or the other side had no time for it."""


@dataclass(frozen=True)
class Exchange:
    """One request on its way, and where its answer goes."""

    inner: Any
    redirects: Redirects
    request: Any
    put: Callable[[Piece], object]
    max_bytes: int
    headers: frozenset[str]
    effect: bool
    left: threading.Event

    def begin(self, response: Any) -> tuple[Head, _Body]:
        """Hand on the head of an answer."""
        head = head_of(response, self.headers)
        if not self.effect:
            self.put(head)
        return head, _Body(self, head, ends_with_connection(self.request.method, response))

    def ended(self, head: Head, body: bytes) -> dict[str, Any]:
        """Return what is recorded of an answer that came whole."""
        if not is_final(head.status):
            if self.effect:
                untaken = head.status == _TOO_MANY
                raise (Refused if untaken else Unanswered)(f"{self.shown}: status {head.status}")
            raise Unrecorded("an answer that asks to try again")
        note_usage(dict(head.headers).get("content-type", ""), body)
        return outcome(head, body)

    def cut(self, head: Head | None, error: BaseException) -> BaseException:
        """Return what it means that an answer did not come whole."""
        if head is not None and is_final(head.status) and self.left.is_set():
            return Left()
        if not isinstance(error, Exception):
            return error
        why = f"{self.shown}: {told(self.request, error)}"
        if not self.effect:
            return Unrecorded(why, for_client(self.request, error))
        unsent = head is None and is_unsent(self.request, error)
        return (Refused if unsent else Unanswered)(why)

    @property
    def shown(self) -> str:
        return f"{self.request.method} {self.request.url.host}"


class _Body:
    """The pieces of a body, up to a limit; `unframed` if it ends as its connection does."""

    def __init__(self, exchange: Exchange, head: Head, unframed: bool) -> None:
        self._exchange = exchange
        self._head = head
        self._unframed = unframed
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
        body = b"".join(self._pieces)
        kind = dict(self._head.headers).get("content-type", "")
        if self._unframed and is_final(self._head.status) and is_cut(kind, body):
            raise library_of(self._exchange.request).RemoteProtocolError(
                "peer closed connection without sending complete message body"
            )
        return body


def perform(method: str, url: str, digest: str, exchange: Exchange) -> dict[str, Any]:  # noqa: ARG001 - recorded
    """Send the request: the body of the step."""
    request = identified(exchange.request)
    head: Head | None = None
    try:
        response = send(exchange.redirects, exchange.inner, request)
        try:
            head, pieces = exchange.begin(response)
            for piece in response.iter_bytes():
                pieces.add(piece)
            body = pieces.whole()
        finally:
            response.close()
    except BaseException as error:
        if (cut := exchange.cut(head, error)) is error:
            raise
        raise cut from None  # Its text may not be stored, nor what it came from.
    return exchange.ended(head, body)


async def perform_async(
    method: str,  # noqa: ARG001 - recorded
    url: str,  # noqa: ARG001
    digest: str,  # noqa: ARG001
    exchange: Exchange,
) -> dict[str, Any]:
    """Send the request: the body of the step, awaited."""
    request = identified(exchange.request)
    head: Head | None = None
    try:
        response = await send_async(exchange.redirects, exchange.inner, request)
        try:
            head, pieces = exchange.begin(response)
            async for piece in response.aiter_bytes():
                pieces.add(piece)
            body = pieces.whole()
        finally:
            await response.aclose()
    except BaseException as error:
        if (cut := exchange.cut(head, error)) is error:
            raise
        raise cut from None  # Its text may not be stored, nor what it came from.
    return exchange.ended(head, body)
