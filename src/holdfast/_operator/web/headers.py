"""Headers of every response, refusals and errors included.

They are set in the outermost layer and override the application's headers, so that no route can
omit them. There is no CORS header: no other site may read an answer.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from holdfast._operator.web.http_responses import error_bytes

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"
)
OK = 200
CACHE = b"cache-control"
HEADERS: dict[bytes, bytes] = {
    b"content-security-policy": CSP.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"no-referrer",
    CACHE: b"no-store",
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
}
KEPT = b"private, max-age=31536000, immutable"
"""The cache header of files whose path contains their digest. Private, because most files need a
sign-in; refusals are never cached."""

logger = logging.getLogger("holdfast.web")


class Headers:
    """Adds the headers to every response, and turns unexpected exceptions into a response."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                message["headers"] = _with_ours(message["status"], message.get("headers", ()))
            await send(message)

        try:
            await self._app(scope, receive, sending)
        except Exception as error:
            # The message of an error may contain users' data; its traceback does not.
            frames = "".join(traceback.format_tb(error.__traceback__))
            logger.error("%s in the page's server\n%s", type(error).__name__, frames)  # noqa: TRY400
            if begun:
                raise
            await _failed(sending)


def _with_ours(status: int, headers: Any) -> list[tuple[bytes, bytes]]:
    theirs = [(name, value) for name, value in headers if name.lower() not in HEADERS]
    ours = dict(HEADERS)
    if status == OK and (CACHE, KEPT) in headers:
        ours[CACHE] = KEPT
    return theirs + list(ours.items())


async def _failed(send: Send) -> None:
    text = error_bytes("InternalError", "internal error; see the log of holdfast ui")
    length = str(len(text)).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", length)]
    await send({"type": "http.response.start", "status": 500, "headers": headers})
    await send({"type": "http.response.body", "body": text})
