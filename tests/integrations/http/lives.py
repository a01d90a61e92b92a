"""A flow of either colour and library that sends what a script says, and the world that answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from types import ModuleType
from typing import Any

from holdfast import flow, step
from holdfast.integrations.http import AsyncDurableTransport, DurableTransport

Script = Callable[[], Generator[Any, Any, Any]]
"""Yields requests, as `dict(method=…, url=…)` or as they are built, and gets responses or errors."""

stumbles = [False]


@step(name="hl-stumble")
def stumble() -> None:
    if stumbles[0]:
        stumbles[0] = False
        raise RuntimeError("the process is in trouble")


def runner(
    library: ModuleType,
    colour: str,
    script: Script,
    inner: Any = None,
    *,
    client: dict[str, Any] | None = None,
    **options: Any,
) -> Callable[[str], Any]:
    """Return what runs the script as a flow; it fails behind the script if `stumbles` says so."""
    options_of_client = client or {}

    @flow(name="hl-sync")
    def sync() -> Any:
        transport = DurableTransport(inner, **options)
        with library.Client(transport=transport, **options_of_client) as opened:
            said = script()
            wanted = next(said)
            while True:
                try:
                    got: Any = opened.send(_built(opened, wanted))
                except Exception as error:
                    got = error
                try:
                    wanted = _told(said, got)
                except StopIteration as end:
                    result = end.value
                    break
        stumble()
        return result

    @flow(name="hl-async")
    async def awaited() -> Any:
        transport = AsyncDurableTransport(inner, **options)
        async with library.AsyncClient(transport=transport, **options_of_client) as opened:
            said = script()
            wanted = next(said)
            while True:
                try:
                    got: Any = await opened.send(_built(opened, wanted))
                except Exception as error:
                    got = error
                try:
                    wanted = _told(said, got)
                except StopIteration as end:
                    result = end.value
                    break
        await stumble.aio()
        return result

    if colour == "sync":
        return sync.run
    return lambda run_id: asyncio.run(awaited.run(run_id))


def _told(said: Generator[Any, Any, Any], got: Any) -> Any:
    return said.throw(got) if isinstance(got, Exception) else said.send(got)


def _built(client: Any, wanted: Any) -> Any:
    return client.build_request(**wanted) if isinstance(wanted, dict) else wanted
