"""Recorded redirects: an address whose secret is not in the record is not requested.

On replay a client that follows a recorded redirect requests the masked address, and finds the
answer recorded for it. If there is none, because the process died in between, the redirected
request is sent again and leads to an address with a fresh signature. That is done for GET and HEAD,
which are safe to repeat. All other masked addresses are refused. The twin functions differ in
`await` alone.
"""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

import holdfast
from holdfast.errors import UsageError
from holdfast.integrations.http.answered import Head
from holdfast.integrations.http.asked import has_mask, shown_url
from holdfast.integrations.http.sent import copied, library_of

_SAFE = frozenset({"GET", "HEAD"})
_REDIRECTS = range(300, 400)


class MaskedAddress(UsageError):
    """A request would have gone to an address without its secret."""

    def __init__(self, request: Any, why: str = "") -> None:
        super().__init__(
            f"{request.method} {shown_url(str(request.url))} was not sent: the record has this "
            f"address without its secret{why}. `holdfast fork {_run_id()} NEW --before STEP` asks "
            "anew, with STEP as the one whose answer has the address"
        )


class Redirects:
    """Requests of this process that were answered with a recorded redirect, by its target.

    They live as long as the client keeps them, for its history.
    """

    def __init__(self) -> None:
        self._sources: WeakValueDictionary[tuple[str, str], Any] = WeakValueDictionary()

    def note(self, request: Any, head: Head) -> None:
        """Note a request that has a recorded answer."""
        if request.method not in _SAFE:
            return
        url = _leads_to(request, head.status, dict(head.headers).get("location"))
        if url is None or not has_mask(str(url)):
            return
        place = _place(url)
        if place not in self._sources or not has_mask(str(request.url)):  # Prevents a circle.
            self._sources[place] = request

    def source(self, request: Any) -> Any:
        """Return the request that was redirected to this one."""
        source = self._sources.get(_place(request.url))
        if source is None or request.method not in _SAFE:
            raise MaskedAddress(request)
        return source


def _run_id() -> str:
    run = holdfast.context.current_run()
    assert run is not None
    return run.run_id


def _place(url: Any) -> tuple[str, str]:
    return _run_id(), shown_url(str(url))


def _is_masked(request: Any) -> bool:
    """Requests outside a run pass unchanged."""
    return has_mask(str(request.url)) and holdfast.context.current_run() is not None


def _leads_to(request: Any, status: int, location: str | None) -> Any:
    if status not in _REDIRECTS or not location:
        return None
    try:
        return request.url.join(location)
    except (library_of(request).InvalidURL, ValueError):
        return None


def _onward(source: Any, response: Any, request: Any) -> Any:
    """Return the request to a redirect's current target; None if there is no more."""
    url = _leads_to(source, response.status_code, response.headers.get("location"))
    if url is None:
        return None
    # The headers are for the recorded origin: another one must not see them.
    if (url.scheme, url.host, url.port) != (request.url.scheme, request.url.host, request.url.port):
        raise MaskedAddress(request, ", and the redirect now leads to another host")
    return copied(request, url)


def send(redirects: Redirects, inner: Any, request: Any) -> Any:
    """Send a request, to an address that has its secrets."""
    if not _is_masked(request):
        return inner.handle_request(request)
    source = redirects.source(request)
    response = send(redirects, inner, source)
    try:
        onward = _onward(source, response, request)
    except MaskedAddress:
        response.close()
        raise
    if onward is None:  # Its answer is different now, and that is the answer.
        return response
    response.close()
    return inner.handle_request(onward)


async def send_async(redirects: Redirects, inner: Any, request: Any) -> Any:
    """Send a request, to an address that has its secrets, awaited."""
    if not _is_masked(request):
        return await inner.handle_async_request(request)
    source = redirects.source(request)
    response = await send_async(redirects, inner, source)
    try:
        onward = _onward(source, response, request)
    except MaskedAddress:
        await response.aclose()
        raise
    if onward is None:  # Its answer is different now, and that is the answer.
        return response
    await response.aclose()
    return await inner.handle_async_request(onward)
