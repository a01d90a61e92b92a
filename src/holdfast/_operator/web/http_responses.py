"""Write HTTP responses: JSON that is safe to embed anywhere, and errors with their status.

The three special characters of HTML, and the two line separators of JavaScript, are escaped. This
does not change the JSON; embedded elsewhere, it cannot start a tag.
"""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.responses import Response

from holdfast.errors import (
    AnswerConflict,
    ConfirmationRequired,
    Corrupt,
    HoldfastError,
    KeyConflict,
    NotFound,
    RunBusy,
    RunConflict,
    RunDeleted,
    RunEnded,
    RunError,
    RunHeld,
    RunNotFound,
    StaleView,
    StoreError,
    StoreLostData,
    UsageError,
)

VERSION = 1
JSON = "application/json"

_STATUS: list[tuple[type[HoldfastError], int]] = [
    (RunNotFound, 404),
    (NotFound, 404),
    (RunDeleted, 410),
    (StaleView, 409),
    (AnswerConflict, 409),
    (RunConflict, 409),
    (ConfirmationRequired, 409),
    (RunBusy, 409),
    (RunEnded, 409),
    (RunHeld, 409),
    (KeyConflict, 409),
    (StoreLostData, 409),
    (Corrupt, 500),
    (StoreError, 503),
    (UsageError, 400),
]
_INERT = (
    (b"<", b"\\u003c"),
    (b">", b"\\u003e"),
    (b"&", b"\\u0026"),
    ("\u2028".encode(), b"\\u2028"),
    ("\u2029".encode(), b"\\u2029"),
)


class Problem(Exception):
    """A refusal before a store is used; becomes a response with this status."""

    def __init__(self, status: int, type: str, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.type = type
        self.message = message
        self.more = more
        self.headers: dict[str, str] = {}


def encoded(value: Any) -> bytes:
    """Return a value as JSON with HTML characters escaped."""
    text = msgspec.json.encode(value)
    for byte, escape in _INERT:
        if byte in text:
            text = text.replace(byte, escape)
    return text


def answer(value: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """Return an answer in JSON."""
    return Response(encoded(value), status, headers, media_type=JSON)


def error_bytes(type: str, message: str, **more: Any) -> bytes:
    """Return the body of an error response."""
    told = {"type": type, "message": message, **more}
    return encoded({"version": VERSION, "error": told})


def refusal(problem: Problem) -> Response:
    """Return the response to a refused request."""
    text = error_bytes(problem.type, problem.message, **problem.more)
    return Response(text, problem.status, problem.headers, media_type=JSON)


def failure(error: HoldfastError) -> Response:
    """Return the response for an error of Holdfast."""
    more: dict[str, Any] = {}
    if isinstance(error, RunError | Corrupt) and error.run_id is not None:
        more["run_id"] = error.run_id
    if isinstance(error, ConfirmationRequired):
        more["effects"] = error.effects
    if isinstance(error, RunHeld):
        more |= {"reason": error.reason, "step": error.step, "actions": error.actions}
    if isinstance(error, AnswerConflict):
        more |= {"name": error.name, "actor": error.actor}
    text = error_bytes(type(error).__name__, str(error), **more)
    return Response(text, status_of(error), media_type=JSON)


def status_of(error: HoldfastError) -> int:
    """Return the status of an error."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
