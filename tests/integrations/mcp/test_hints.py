"""What a server said of a tool stays so for a call that was begun, in whatever scope that was."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from mcp import Client
from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

import holdfast
from holdfast import aio, flow
from holdfast.errors import RunHeld
from holdfast.integrations.mcp import DurableClient, durable
from holdfast.integrations.transcripts import results_of

HARMLESS = ToolAnnotations(read_only_hint=True)


class Bank:
    """A server in two lives: in the second it calls every tool of its read-only."""

    def __init__(self) -> None:
        self.paid: list[int] = []
        self.lives = 0

    def client(self) -> Any:
        self.lives += 1
        server = MCPServer("bank", log_level="ERROR")
        server.add_tool(self.look, annotations=HARMLESS, structured_output=False)
        later = HARMLESS if self.lives > 1 else None
        server.add_tool(self.refund, annotations=later, structured_output=False)
        return durable(Cut(server, self) if self.lives == 1 else Client(server), hints=True)

    def look(self) -> str:
        """Look."""
        return "seen"

    def refund(self, amount: int) -> str:
        """Pay money back."""
        self.paid.append(amount)
        return "paid"


class Cut(Client):
    """A client that is interrupted when the server has paid."""

    def __init__(self, server: MCPServer, bank: Bank) -> None:
        super().__init__(server)
        self._bank = bank

    async def call_tool(self, name: str, *args: Any, **options: Any) -> Any:
        said = await super().call_tool(name, *args, **options)
        if name == "refund":
            raise KeyboardInterrupt
        return said


async def in_turns(client: Any, first: bool) -> None:
    del first
    async for said in aio.turns([], max_turns=3):
        if len(said) == 2:
            return
        tool, given = [("look", {}), ("refund", {"amount": 1})][len(said)]
        await client.call_tool(tool, given, call_id=f"c{len(said)}")
        said.append(tool)


async def in_branches(client: Any, first: bool) -> None:
    """The branch that asks what the server says is another one in each life."""
    asked = asyncio.Event()

    async def look() -> None:
        if first:
            return  # It did not come so far.
        await client.call_tool("look", {}, call_id="c0")
        asked.set()

    async def refund() -> None:
        if not first:
            await asked.wait()
        await client.call_tool("refund", {"amount": 1}, call_id="c1")

    await aio.gather(look(), refund())


async def by_place(client: Any, first: bool) -> None:
    """Calls without an id."""
    del first
    async for said in aio.turns([], max_turns=3):
        if len(said) == 2:
            return
        if not said:
            await client.call_tool("look")
        else:
            await client.call_tool("refund", {"amount": 1})
        said.append("done")


@pytest.mark.parametrize("work", [in_turns, in_branches, by_place])
def test_a_call_in_doubt_is_no_step_because_the_server_says_so_now(work: Any) -> None:
    bank = Bank()

    @flow(name=f"mh.{work.__name__}")
    async def agent() -> None:
        async with bank.client() as client:
            await work(client, bank.lives == 1)

    with holdfast.open("memory:") as store:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(agent.run("r"))
        assert bank.paid == [1]
        with pytest.raises(RunHeld) as held:
            asyncio.run(agent.run("r"))
        assert held.value.reason == "in_doubt"
        assert bank.paid == [1]
        steps = {it.key: it for it in store.get("r").steps}
        assert steps[held.value.step].effect
        # What the server said first stands beside the call: that it is held does not hang on the core.
        scope, _, key = held.value.step.rpartition("/")
        beside = (
            f"{scope}/tool_hints.refund:mcp{key.replace('refund:', '.').removeprefix('refund')}"
        )
        told = [it for it in store.history("r") if it.step == beside and "result" in it.body]
        assert [it.body["result"] for it in told] == [False]


def test_what_is_asked_for_beside_a_call_is_no_result_of_a_tool() -> None:
    bank = Bank()
    bank.lives = 1

    @flow(name="mh.results")
    async def agent() -> None:
        async with bank.client() as client:
            await client.call_tool("look", {}, call_id="c0")

    with holdfast.open("memory:") as store:
        asyncio.run(agent.run("r"))
        assert [it.key for it in store.get("r").steps] == ["tool_hints.look:mcp.c0", "look:c0"]
        assert list(results_of(store, "r")) == ["c0"]


def test_a_server_is_asked_once_in_a_life(monkeypatch: pytest.MonkeyPatch) -> None:
    bank, pages = Bank(), []
    bank.lives = 1
    page = DurableClient._page

    async def counted(self: Any, cursor: Any) -> Any:
        pages.append(cursor)
        return await page(self, cursor)

    monkeypatch.setattr(DurableClient, "_page", counted)

    @flow(name="mh.once")
    async def agent() -> None:
        async with bank.client() as client:
            looks = [client.call_tool("look", {}, call_id=f"c{n}") for n in range(3)]
            await aio.gather(*looks)

    with holdfast.open("memory:"):
        asyncio.run(agent.run("r"))
    assert pages == [None]
