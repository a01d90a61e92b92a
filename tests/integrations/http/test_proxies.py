"""Requests that go through a proxy: a real one, on a socket, that answers for the other side."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import pytest

import holdfast
from holdfast import testing
from holdfast.errors import UsageError
from holdfast.integrations.http import AsyncDurableTransport, DurableTransport
from tests.integrations.http.wire import Got, Wire, whole

URL = "http://shop.test/things"


def answer(_got: Got) -> bytes:
    return whole("200 OK", b"through the proxy")


def transport(colour: str, *args: Any, **options: Any) -> Any:
    return (DurableTransport if colour == "sync" else AsyncDurableTransport)(*args, **options)


def asked(library: ModuleType, colour: str, store: Any, sends: Any, url: str = URL) -> str:
    """Ask once, in a block of its own that is run again and again."""
    if colour == "sync":
        with (
            holdfast.run("r", store=store),
            library.Client(transport=sends) as client,
        ):
            return str(client.get(url).text)

    async def ask() -> str:
        async with (
            holdfast.aio.run("r", store=store),
            library.AsyncClient(transport=sends) as client,
        ):
            return str((await client.get(url)).text)

    return asyncio.run(ask())


def test_proxies_of_the_environment_are_used_and_recorded(
    library, colour, holdfast_store, monkeypatch
):
    with Wire(answer) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        for _ in range(2):
            got = asked(library, colour, holdfast_store, transport(colour))
            assert got == "through the proxy"
    assert [got.line for got in proxy.got] == [f"GET {URL} HTTP/1.1"]
    assert len(holdfast_store.get("r").steps) == 1


def test_hosts_that_the_environment_names_are_asked_directly(
    library, colour, holdfast_store, monkeypatch
):
    with Wire(answer) as proxy, Wire(lambda _: whole("200 OK", b"direct")) as world:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "127.0.0.1,example.test")
        got = asked(library, colour, holdfast_store, transport(colour), world.url)
        assert got == "direct"
        monkeypatch.delenv("NO_PROXY")
        with testing.store() as other:
            own = transport(colour, trust_env=False)
            assert asked(library, colour, other, own, world.url) == "direct"
    assert proxy.got == []


def test_a_proxy_in_the_inner_transport_is_recorded(library, colour, holdfast_store):
    kind = library.HTTPTransport if colour == "sync" else library.AsyncHTTPTransport
    with Wire(answer) as proxy:
        for _ in range(2):
            sends = transport(colour, kind(proxy=proxy.url))
            assert asked(library, colour, holdfast_store, sends) == "through the proxy"
    assert len(proxy.got) == 1


def test_a_proxy_that_would_pass_the_transport_by_is_refused(library, colour):
    client = library.Client if colour == "sync" else library.AsyncClient
    with pytest.raises(UsageError, match=r"record nothing; write transport=\w*DurableTransport\("):
        client(transport=transport(colour), proxy="http://127.0.0.1:9")
    client(proxy="http://127.0.0.1:9")
    client(transport=transport(colour))
