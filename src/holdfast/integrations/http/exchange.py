"""The body of the step: send the request, and pass on each piece of the answer as it arrives.

The twin functions differ in `await` alone. A result that is no outcome (an error on the way, a
status that asks to retry) leaves the step as `Unrecorded`: the step is cancelled, and a client that
sends the same request again is in the same step again. The journal has one step, with the final
answer. A reader that leaves a final answer has made a call of its own, `Left`: the same request
sent again is the next step, live and on replay.
"""

from __future__ import annotations

import contextlib
import json
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, cast

import msgspec

import holdfast
from holdfast.errors import HoldfastError, UsageError
from holdfast.integrations._relay import Left
from holdfast.integrations.http.answered import Head, head_of, is_final, outcome
from holdfast.integrations.http.redirects import MaskedAddress, Redirects, send, send_async
from holdfast.integrations.http.sent import identified, library_of

Piece = Head | bytes
_TOO_MANY = 429


class Unrecorded(GeneratorExit):
    """The answer is no outcome of the step. `error` is for the client; without one it has the
    answer."""

    def __init__(self, why: str, error: Exception | None = None) -> None:
        super().__init__(why)
        self.error = error


class Unanswered(Exception):
    """An effect was sent, and the answer does not say whether it happened."""


class Refused(Exception):
    """An effect did not happen: there was no connection, or the other side had no capacity for
    it."""


@dataclass(frozen=True)
class Exchange:
    """One request on its way, and the receiver of its answer."""

    inner: Any
    redirects: Redirects
    request: Any
    put: Callable[[Piece], object]
    max_bytes: int
    headers: frozenset[str]
    effect: bool
    left: threading.Event

    def begin(self, response: Any) -> tuple[Head, _Body]:
        """Pass on the head of an answer."""
        head = head_of(response, self.headers)
        if not self.effect:
            self.put(head)
        return head, _Body(self, head, ends_with_connection(self.request.method, response))

    def ended(self, head: Head, body: bytes) -> dict[str, Any]:
        """Return the record of a complete answer."""
        if not is_final(head.status):
            if self.effect:
                untaken = head.status == _TOO_MANY
                raise (Refused if untaken else Unanswered)(f"{self.summary}: status {head.status}")
            raise Unrecorded("an answer that asks to try again")
        note_usage(dict(head.headers).get("content-type", ""), body)
        return outcome(head, body)

    def cut(self, head: Head | None, error: BaseException) -> BaseException:
        """Return the meaning of an incomplete answer."""
        if head is not None and is_final(head.status) and self.left.is_set():
            return Left()
        if not isinstance(error, Exception):
            return error
        why = f"{self.summary}: {error_text(self.request, error)}"
        if not self.effect:
            return Unrecorded(why, for_client(self.request, error))
        unsent = head is None and is_unsent(self.request, error)
        return (Refused if unsent else Unanswered)(why)

    @property
    def summary(self) -> str:
        return f"{self.request.method} {self.request.url.host}"


class _Body:
    """The pieces of a body, up to a limit; `unframed` if it ends with its connection."""

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
                f"the answer to {self._exchange.summary} has more than {self._exchange.max_bytes} "
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
        raise cut from None  # Its text may not be stored, nor its cause.
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
        raise cut from None  # Its text may not be stored, nor its cause.
    return exchange.ended(head, body)


# -- failures of a request ---------------------------------------------------------------------
# Transport errors: whether anything was sent, and how much the record may show.


_UNSENT = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError", "UnsupportedProtocol")
_HARMLESS = ("NetworkError", "TimeoutException", "ProxyError", "UnsupportedProtocol")
_QUOTED = re.compile(r"""b(['"]).*\1""", re.DOTALL)


def is_unsent(request: Any, error: BaseException) -> bool:
    """Return whether an error came before anything was sent; in doubt it did not."""
    if isinstance(error, (MaskedAddress, *_classes(request, _UNSENT))):
        return True
    # For HTTP/1 it means that the request's head is invalid; for HTTP/2 it may come at any time.
    return isinstance(error, library_of(request).LocalProtocolError) and not _is_of_h2(error)


def _is_of_h2(error: BaseException | None) -> bool:
    while error is not None:
        if type(error).__module__.partition(".")[0] == "h2":
            return True
        error = error.__cause__ or error.__context__
    return False


def error_text(request: Any, error: BaseException) -> str:
    """Return an error as it may be stored: texts of other errors may quote headers and bodies."""
    name = type(error).__name__
    if isinstance(error, HoldfastError):
        return f"{name}: {error}"
    return repr(error) if isinstance(error, _classes(request, _HARMLESS)) else name


def for_client(request: Any, error: Exception) -> Exception:
    """Return an error for the client: it may leave the flow, and is stored with its text."""
    of_header = library_of(request).LocalProtocolError
    if not isinstance(error, of_header):
        return error
    shown: Exception = of_header(_QUOTED.sub("***", str(error)))
    return shown


def _classes(request: Any, names: tuple[str, ...]) -> tuple[type[BaseException], ...]:
    return tuple(getattr(library_of(request), name) for name in names)


# -- complete and cut answers ------------------------------------------------------------------
# Detect the end of an answer without a length.
#
# An answer of HTTP/1 with neither a length nor chunks ends with its connection, and a cut
# connection ends in the same way. The content shows whether such an answer is complete: JSON and
# event streams have their own ends. For other types this is unknown.


_WITHOUT_BODY = frozenset({204, 304})
_EMPTY_LINE = (b"\n\n", b"\n\r\n", b"\r\r")
_DATA = b"data:"
_DONE = b"[DONE]"
_ENDS = {
    "chat.completion.chunk": {"[DONE]"},
    "message_start": {"message_stop"},
    "response.created": {"response.completed", "response.incomplete", "response.failed"},
}
"""How model streams begin and end: of OpenAI's chat, of Anthropic, of the Responses."""


def ends_with_connection(method: str, response: Any) -> bool:
    """Return whether the end of an answer is the end of the connection, and nothing else."""
    if method == "HEAD" or response.status_code in _WITHOUT_BODY:
        return False
    framed = "content-length" in response.headers or "transfer-encoding" in response.headers
    version: bytes = response.extensions.get("http_version", b"")
    return version.startswith(b"HTTP/1") and not framed


def is_cut(content_type: str, body: bytes) -> bool:
    """Return whether an answer is incomplete."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return not body.endswith(_EMPTY_LINE) or _lacks_end(set(_said(body)))
    return (kind == "application/json" or kind.endswith("+json")) and not _is_json(body)


def _lacks_end(said: set[str]) -> bool:
    if "error" in said:
        return False
    return any(begin in said and not said & ends for begin, ends in _ENDS.items())


def _said(body: bytes) -> Iterator[str]:
    """Return the event names of a stream."""
    for line in body.splitlines():
        data = line.removeprefix(_DATA).strip() if line.startswith(_DATA) else b""
        if data == _DONE:
            yield "[DONE]"
        elif data.startswith(b"{"):
            yield from _names(data)


def _names(data: bytes) -> Iterator[str]:
    try:
        event: dict[str, Any] = msgspec.json.decode(data, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return
    if event.get("error"):
        yield "error"
    for name in (event.get("type"), event.get("object")):
        if isinstance(name, str):
            yield name


def _is_json(body: bytes) -> bool:
    """Parse leniently, as clients do: only the shape counts here."""
    encoding = cast("str", json.detect_encoding(body))
    try:
        json.loads(body.decode(encoding, "replace"), strict=False)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True


# -- usage in answers --------------------------------------------------------------------------
# The token usage of a model call, read from answers in the formats of OpenAI and Anthropic.


_NAMES = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
_COUNTED = ("input_tokens", "output_tokens")


def note_usage(content_type: str, body: bytes) -> None:
    """Inside the step: record the token usage that the answer reports, if it does."""
    found: dict[str, Any] = {}
    if "event-stream" in content_type:
        for event in _events(body):
            _add(found, event)
    elif "json" in content_type:
        _add(found, _decoded(body))
    if any(name in found for name in _COUNTED):
        _count(found)


def _count(found: dict[str, Any]) -> None:
    """Unusable numbers (`10**30` tokens) must not spoil their answer."""
    with contextlib.suppress(UsageError):
        holdfast.context.record_usage(
            model=found.get("model"),
            input_tokens=found.get("input_tokens", 0),
            output_tokens=found.get("output_tokens", 0),
        )


def _events(body: bytes) -> Iterator[Any]:
    for line in body.splitlines():
        if line.startswith(_DATA) and (b'"usage"' in line or b'"model"' in line):
            yield _decoded(line[len(_DATA) :])


def _add(found: dict[str, Any], said: Any) -> None:
    """Read one object: an answer, a chunk, or an event that contains an answer."""
    if not isinstance(said, dict):
        return
    told = cast("dict[str, Any]", said)
    for inner in ("response", "message"):  # Of OpenAI's Responses, and of Anthropic's messages.
        _add(found, told.get(inner))
    if isinstance(model := told.get("model"), str):
        found["model"] = model
    usage = told.get("usage")
    if not isinstance(usage, dict):
        return
    for said_name, amount in cast("dict[str, Any]", usage).items():
        name = _NAMES.get(said_name, said_name)
        if name in _COUNTED and type(amount) is int and amount >= 0:
            found[name] = amount  # Later events have the sum, not an increment.


def _decoded(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
