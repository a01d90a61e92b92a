"""A runner whose client has no durable transport is stopped before it calls a tool."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.lib.responses_tool_runner import AsyncResponsesToolRunner, ResponsesToolRunner

import holdfast
from holdfast import flow
from holdfast.errors import RunFailed
from holdfast.integrations.http import AsyncDurableTransport, DurableTransport
from holdfast.integrations.openai import ModelNotRecorded, async_ledger, ledger
from holdfast.testing import CallTools, FakeModelServer, Say

SCRIPT = [CallTools(("look", {"x": 1}, "call_a")), Say("Done.")]
PARAMS: Any = {"model": "test", "input": "Look."}
CALLED: list[int] = []


def look(x: int) -> str:
    """Look something up."""
    CALLED.append(x)
    return "found"


def asked(server: FakeModelServer, transport: Any = None, **given: Any) -> str:
    http = httpx2.Client(transport=transport)
    with OpenAI(base_url=f"{server.url}/v1", api_key="key", http_client=http) as client:
        book = ledger([look], **given)
        runner = ResponsesToolRunner(functions=book.functions)
        return runner.run(client, PARAMS, ledger=book).output_text


async def asked_async(server: FakeModelServer, transport: Any = None, **given: Any) -> str:
    http = httpx2.AsyncClient(transport=transport)
    async with AsyncOpenAI(base_url=f"{server.url}/v1", api_key="key", http_client=http) as client:
        book = async_ledger([look], **given)
        runner = AsyncResponsesToolRunner(functions=book.functions)
        return (await runner.run(client, PARAMS, ledger=book)).output_text


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_it_is_stopped_with_the_way_out(tmp_path: Path, colour: str) -> None:
    CALLED.clear()
    mended: list[bool] = []
    with FakeModelServer(SCRIPT) as server, holdfast.open(f"sqlite:///{tmp_path}/r.db") as store:

        @flow(name="unrecorded")
        def sync() -> str:
            return asked(server, DurableTransport() if mended else None)

        @flow(name="unrecorded_async")
        async def awaited() -> str:
            return await asked_async(server, AsyncDurableTransport() if mended else None)

        def run() -> str:
            return sync.run("r") if colour == "sync" else asyncio.run(awaited.run("r"))

        with pytest.raises(RunFailed, match=r"ModelNotRecorded: .*transport=DurableTransport\(\)"):
            run()
        assert (server.count, CALLED) == (1, [])
        mended.append(True)
        assert run() == "Done."
        assert (server.count, CALLED) == (3, [1])
        assert store.get("r").status == "completed"


def test_a_block_is_stopped_too(tmp_path: Path) -> None:
    with (
        FakeModelServer(SCRIPT) as server,
        holdfast.open(f"sqlite:///{tmp_path}/r.db") as store,
    ):
        with pytest.raises(ModelNotRecorded, match="durable transport"), holdfast.run("r"):
            asked(server)
        with holdfast.run("r"):
            assert asked(server, DurableTransport()) == "Done."
        assert store.get("r").status == "completed"


@pytest.mark.parametrize("transport", [None, DurableTransport(record=lambda _request: False)])
def test_who_says_so_may_ask_again(tmp_path: Path, transport: Any) -> None:
    with FakeModelServer(SCRIPT) as server, holdfast.open(f"sqlite:///{tmp_path}/r.db"):
        with holdfast.run("r"):
            assert asked(server, transport, asks_again=True) == "Done."
        assert server.count == 2
        with pytest.raises(ModelNotRecorded), holdfast.run("other"):
            asked(server, transport)


def test_outside_a_run_nothing_is_asked_of_the_client() -> None:
    with FakeModelServer(SCRIPT) as server:
        assert asked(server) == "Done."
        assert asyncio.run(asked_async(server)) == "Done."
