"""Proxies: those of the environment are used; one that is given to a client is refused.

A client that is given a `proxy=` makes a transport of its own for it and never asks ours, so that
nothing would be recorded and nobody would know. The libraries have no place where a transport could
notice that, so the constructor of their clients is asked.
"""

from __future__ import annotations

import functools
import urllib.request
from typing import Any

from holdfast.errors import UsageError


def proxies() -> dict[str, str]:
    """Return the proxies of the environment by scheme, as the libraries read them."""
    return urllib.request.getproxies()


def proxy_for(url: Any, proxies: dict[str, str]) -> str | None:
    """Return the proxy that a request goes through, if any."""
    found = proxies.get(url.scheme) or proxies.get("all")
    if not found:
        return None
    place = url.host if url.port is None else f"{url.host}:{url.port}"
    if urllib.request.proxy_bypass(place):
        return None
    return found if "://" in found else f"http://{found}"


def refuse_proxies(client: Any, ours: type) -> None:
    """Let a class of clients refuse a proxy beside a transport of ours."""
    made = client.__init__

    @functools.wraps(made)
    def checked(self: Any, *args: Any, **options: Any) -> None:
        proxied = options.get("proxy") is not None or options.get("proxies") is not None
        if proxied and isinstance(options.get("transport"), ours):
            kind = "HTTPTransport" if client.__name__ == "Client" else "AsyncHTTPTransport"
            library = client.__module__.partition(".")[0]
            raise UsageError(
                f"{client.__name__}(transport={ours.__name__}(…), proxy=…) would send every request "
                "past the transport, and record nothing; write "
                f"transport={ours.__name__}({library}.{kind}(proxy=…))"
            )
        made(self, *args, **options)

    client.__init__ = checked
