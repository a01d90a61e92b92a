"""What is kept of an answer: status, a few headers, and the body as the client reads it."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from holdfast.integrations.http.asked import shown_url

# A 409 is a conflict with a request that is still under way, as SDKs understand it.
_AGAIN = frozenset({408, 409, 425, 429})
_SERVER_ERRORS = 500
_KEPT = re.compile(
    r"content-(type|language|disposition)|date|etag|last-modified|link|location|retry-after(-ms)?"
    r"|x-should-retry|(x-)?request-id|(x-)?ratelimit-.*|openai-.*|anthropic-.*"
)
# The body is kept decoded, and in one piece.
_OF_TRANSFER = frozenset(
    {"content-encoding", "content-length", "transfer-encoding", "connection", "keep-alive"}
)

Headers = list[tuple[str, str]]


class Head(NamedTuple):
    """What comes before the body."""

    status: int
    headers: Headers
    extensions: dict[str, Any]


def is_final(status: int) -> bool:
    """Say whether a status is an outcome; others are asked again, by SDKs and by us."""
    return status < _SERVER_ERRORS and status not in _AGAIN


def head_of(response: Any, more: frozenset[str]) -> Head:
    """Return what the client sees of an answer: of an outcome the same that a replay would show."""
    pairs = [(name.lower(), value) for name, value in response.headers.multi_items()]
    if is_final(response.status_code):
        cookies = [(name, value) for name, value in pairs if name == "set-cookie"]
        headers = [*kept(pairs, more), *cookies]
    else:
        headers = [(name, value) for name, value in pairs if name not in _OF_TRANSFER]
    versions = {k: v for k, v in response.extensions.items() if k == "http_version"}
    return Head(response.status_code, headers, versions)


def kept(headers: Headers, more: frozenset[str]) -> Headers:
    """Return the headers that are recorded: none that is or may hold a secret."""
    return [
        (name, shown_url(value) if name == "location" else value)
        for name, value in headers
        if (_KEPT.fullmatch(name) or name in more)
        and name not in _OF_TRANSFER
        and name != "set-cookie"
    ]


def outcome(head: Head, body: bytes) -> dict[str, Any]:
    """Return what is recorded: text where it is text, so that people can read it."""
    try:
        text: str | bytes = body.decode()
    except UnicodeDecodeError:
        text = body
    headers = [[name, value] for name, value in head.headers if name != "set-cookie"]
    return {"status": head.status, "headers": headers, "body": text}


def replayed(record: dict[str, Any]) -> tuple[Head, bytes]:
    """Return a recorded answer."""
    body = record["body"]
    headers = [(name, value) for name, value in record["headers"]]
    return Head(record["status"], headers, {}), body.encode() if isinstance(body, str) else body
