"""What is kept of a request: method, address and a digest. Never a header, never the body."""

from __future__ import annotations

import hashlib
import re
from typing import Any
from urllib.parse import unquote_plus, urlsplit, urlunsplit

import msgspec

import holdfast

KEY_MAX_CHARS = 120
UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})
IDEMPOTENCY_KEY = "Idempotency-Key"
# Made by chance by the SDKs of OpenAI and Anthropic; after a crash it would be another one.
_MADE_BY_SDK = "stainless-python-retry-"
_SECRET = re.compile(r"(?i)key|token|secret|passw|signature|^sig$|credential|auth|session")
_BOUNDARY = re.compile(r"boundary=\"?([^\";,]+)")
_NOT_IN_KEYS = re.compile(r"[^\w.~-]+")


def shown_url(url: str) -> str:
    """Return an address that may be seen: no user, no fragment, no query value that looks secret.

    The rest is spelled as it was, and an address that was shown once is shown the same again.
    """
    parts = urlsplit(url)
    query = "&".join(_shown_pair(pair) for pair in parts.query.split("&"))
    host = parts.netloc.rpartition("@")[2]
    return holdfast.masked(urlunsplit((parts.scheme, host, parts.path, query, "")))


def _shown_pair(pair: str) -> str:
    name, given, _ = pair.partition("=")
    return f"{name}=***" if given and _SECRET.search(unquote_plus(name)) else pair


def step_key(request: Any) -> str:
    """`POST api.openai.com.v1.chat.completions`: calls of one address are told apart by their order."""
    parts = urlsplit(shown_url(str(request.url)))
    place = _NOT_IN_KEYS.sub(".", f"{parts.hostname or ''}{parts.path}").strip(".")
    return f"{request.method} {place}"[:KEY_MAX_CHARS]


def digest_of(request: Any) -> str:
    """Return a digest of the body: of what a JSON body says, however a version of httpx spells it."""
    body: bytes = request.content
    kind = request.headers.get("content-type", "")
    if "json" in kind:
        body = _canonical(body)
    elif found := _BOUNDARY.search(kind):  # Made by chance for each request.
        body = body.replace(found[1].encode(), b"boundary")
    return hashlib.sha256(body).hexdigest()


def _canonical(body: bytes) -> bytes:
    try:
        return msgspec.json.encode(msgspec.json.decode(body), order="sorted")
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return body


def identify(request: Any) -> None:
    """Inside the step: let the other side see that a repeated request is the same one."""
    given = request.headers.get(IDEMPOTENCY_KEY, _MADE_BY_SDK)
    if request.method in UNSAFE and given.startswith(_MADE_BY_SDK):
        request.headers[IDEMPOTENCY_KEY] = holdfast.idempotency_key()
