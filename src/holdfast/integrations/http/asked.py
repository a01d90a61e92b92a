"""The record of a request: method, address and a digest. Never a header, never the body."""

from __future__ import annotations

import hashlib
import re
from typing import Any
from urllib.parse import unquote_plus, urlsplit, urlunsplit

import msgspec

import holdfast

KEY_MAX_CHARS = 120
_MASK = "***"
_SECRET = re.compile(
    r"(?i)key|token|secret|passw|pwd|jwt|signature|^sig$|^code$|credential|auth|session"
)
# Page cursors are no secrets, whatever their names.
_PAGING = re.compile(
    r"(?i)^\W?((next|page|pagination|continuation|resumption|sync|skip|delta)[-_]?)+token$|^cursor"
)
_BETWEEN = re.compile(r"([&;])")
_REGISTERED = "[secret "
_BOUNDARY = re.compile(r"boundary=\"?([^\";,]+)")
_NOT_IN_KEYS = re.compile(r"[^\w.~-]+")


def shown_url(url: str) -> str:
    """Return an address that may be shown: no user, no fragment, no query value that looks secret.

    The rest keeps its spelling, and a shown address is shown the same again.
    """
    parts = urlsplit(url)
    query = "".join(_shown_pair(pair) for pair in _BETWEEN.split(parts.query))
    host = parts.netloc.rpartition("@")[2]
    return holdfast.redaction.redact(urlunsplit((parts.scheme, host, parts.path, query, "")))


def _shown_pair(pair: str) -> str:
    name, given, _ = pair.partition("=")
    return f"{name}={_MASK}" if given and _is_secret(name) else pair


def _is_secret(name: str) -> bool:
    plain = unquote_plus(name)
    return bool(_SECRET.search(plain)) and not _PAGING.search(plain)


def has_mask(url: str) -> bool:
    """Return whether an address comes from a record, and its secret is missing."""
    if "secret" in url and _REGISTERED in unquote_plus(url):
        return True
    if _MASK not in url:
        return False
    pairs = (pair.partition("=") for pair in _BETWEEN.split(urlsplit(url).query))
    return any(value == _MASK and _is_secret(name) for name, _, value in pairs)


def request_key(request: Any) -> str:
    """`POST api.openai.com.v1.chat.completions`: the order distinguishes calls of one address."""
    parts = urlsplit(shown_url(str(request.url)))
    place = _NOT_IN_KEYS.sub(".", f"{parts.hostname or ''}{parts.path}").strip(".")
    return f"{request.method} {place}"[:KEY_MAX_CHARS]


def digest_of(request: Any) -> str:
    """Return a digest of the body: of a JSON body's contents, however a version of httpx spells
    it."""
    body: bytes = request.content
    kind = request.headers.get("content-type", "")
    if "json" in kind:
        body = _canonical(body)
    elif found := _BOUNDARY.search(kind):  # Random for each request.
        body = body.replace(found[1].encode(), b"boundary")
    return hashlib.sha256(body).hexdigest()


def _canonical(body: bytes) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(body), order="sorted")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return body
