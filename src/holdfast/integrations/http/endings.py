"""Where an answer ends that does not say so.

An answer of HTTP/1 with neither a length nor chunks ends with its connection, and a connection that is
cut ends in the same way. What such an answer says tells whether it is whole: JSON and streams of events
have ends of their own. Of other kinds nothing can be known.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

import msgspec

_WITHOUT_BODY = frozenset({204, 304})
_EMPTY_LINE = (b"\n\n", b"\n\r\n", b"\r\r")
_DATA = b"data:"
_DONE = b"[DONE]"
_ENDS = {
    "chat.completion.chunk": {"[DONE]"},
    "message_start": {"message_stop"},
    "response.created": {"response.completed", "response.incomplete", "response.failed"},
}
"""How streams of models begin, and how they end: of OpenAI's chat, of Anthropic, of the Responses."""


def ends_with_connection(method: str, response: Any) -> bool:
    """Say whether the end of an answer is the end of the connection, and nothing else."""
    if method == "HEAD" or response.status_code in _WITHOUT_BODY:
        return False
    framed = "content-length" in response.headers or "transfer-encoding" in response.headers
    version: bytes = response.extensions.get("http_version", b"")
    return version.startswith(b"HTTP/1") and not framed


def is_cut(content_type: str, body: bytes) -> bool:
    """Say whether there was more to come."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind == "text/event-stream":
        return not body.endswith(_EMPTY_LINE) or _lacks_end(set(_said(body)))
    return (kind == "application/json" or kind.endswith("+json")) and not _is_json(body)


def _lacks_end(said: set[str]) -> bool:
    if "error" in said:
        return False
    return any(begin in said and not said & ends for begin, ends in _ENDS.items())


def _said(body: bytes) -> Iterator[str]:
    """Return what the events of a stream call themselves."""
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
    """Be as patient as a client may be: only the shape counts here."""
    encoding = cast("str", json.detect_encoding(body))
    try:
        json.loads(body.decode(encoding, "replace"), strict=False)
    except RecursionError:
        return True
    except ValueError:
        return False
    return True
