"""The request to send: the user's own, or a copy with a change."""

from __future__ import annotations

import sys
from typing import Any

import holdfast

_UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_IDEMPOTENCY_KEY = "Idempotency-Key"
# Random in the SDKs of OpenAI and Anthropic; after a crash it would differ.
_MADE_BY_SDK = "stainless-python-retry-"


def library_of(request: Any) -> Any:
    """Return httpx or httpx2, the request's library."""
    return sys.modules[type(request).__module__.partition(".")[0]]


def copied(request: Any, url: Any = None) -> Any:
    """Return the same request, or a copy to another address; changes of it stay in it."""
    library = library_of(request)
    copy = library.Request(
        request.method,
        url or request.url,
        headers=request.headers,
        stream=request.stream,
        extensions=dict(request.extensions),
    )
    if isinstance(copy.stream, library.ByteStream):  # It was read, so the copy can be.
        copy.read()
    return copy


def identified(request: Any) -> Any:
    """Inside the step: let the other side see that a repeated request is the same one.

    In a copy: a later use of the client's request, behind a redirect or a challenge, is another
    request, and so is the same object sent again.
    """
    given = request.headers.get(_IDEMPOTENCY_KEY, _MADE_BY_SDK)
    if request.method not in _UNSAFE or not given.startswith(_MADE_BY_SDK):
        return request
    copy = copied(request)
    copy.headers[_IDEMPOTENCY_KEY] = holdfast.idempotency_key()
    return copy
