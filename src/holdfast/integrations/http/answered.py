"""The record of an answer: status, a few headers, and the body as the client reads it.

The client sees the headers unchanged. In the record, addresses in them are masked like those of
requests: a client that follows a recorded redirect requests the masked address and finds that
request's record. Cookies are not recorded.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import holdfast
from holdfast.integrations.http.asked import shown_url

# A 409 is a conflict with a request that is still under way, as SDKs understand it.
_AGAIN = frozenset({408, 409, 425, 429})
_SERVER_ERRORS = 500
_KEPT = re.compile(
    r"content-(type|language|disposition)|date|etag|last-modified|link|location|retry-after(-ms)?"
    r"|www-authenticate|x-should-retry|(x-)?request-id|(x-)?ratelimit-.*|openai-.*|anthropic-.*"
)
# The body is stored decoded, and in one piece.
_OF_TRANSFER = frozenset(
    {"content-encoding", "content-length", "transfer-encoding", "connection", "keep-alive"}
)

_ADDRESS = re.compile(r"(?<=<)[^<>]*(?=>)|[^\s<>;,\"]*[?@][^\s<>;\"]*")
"""The text inside `<…>` in a `link`; without the brackets, text that looks like it."""

Headers = list[tuple[str, str]]


class Head(NamedTuple):
    """The head of an answer."""

    status: int
    headers: Headers
    extensions: dict[str, Any]


def is_final(status: int) -> bool:
    """Return whether a status is an outcome; others are asked again, by SDKs and by us."""
    return status < _SERVER_ERRORS and status not in _AGAIN


def head_of(response: Any, more: frozenset[str]) -> Head:
    """Return an outcome as a replay shows it, with cookies: the client's view of the answer."""
    pairs = [(name.lower(), value) for name, value in response.headers.multi_items()]
    if is_final(response.status_code):
        pairs = [(name, value) for name, value in pairs if _is_kept(name, more)]
    headers = [(name, value) for name, value in pairs if name not in _OF_TRANSFER]
    versions = {k: v for k, v in response.extensions.items() if k == "http_version"}
    return Head(response.status_code, headers, versions)


def _is_kept(name: str, more: frozenset[str]) -> bool:
    return bool(_KEPT.fullmatch(name)) or name in more or name == "set-cookie"


def _recorded(headers: Headers) -> list[list[str]]:
    """Return the headers to record: none that is or may contain a secret."""
    return [[name, _open(name, value)] for name, value in headers if name != "set-cookie"]


def _open(name: str, value: str) -> str:
    if name == "location":
        return _open_address(value)
    if name == "link":
        return _ADDRESS.sub(lambda found: _open_address(found[0]), value)
    return value


def _open_address(url: str) -> str:
    try:
        return shown_url(url)
    except ValueError:  # No address, so that no client follows it: its query is useless.
        return holdfast.redaction.redact(url.partition("?")[0].rpartition("@")[2])


def outcome(head: Head, body: bytes) -> dict[str, Any]:
    """Return the body to record: decoded if it is text, so that people can read it."""
    try:
        text: str | bytes = body.decode()
    except UnicodeDecodeError:
        text = body
    return {"status": head.status, "headers": _recorded(head.headers), "body": text}


def replayed(record: dict[str, Any]) -> tuple[Head, bytes]:
    """Return a recorded answer."""
    body = record["body"]
    headers = [(name, value) for name, value in record["headers"]]
    return Head(record["status"], headers, {}), body.encode() if isinstance(body, str) else body
