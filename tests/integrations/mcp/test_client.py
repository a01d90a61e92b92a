"""Calls of a client inside runs, against real servers in memory: what is recorded, and as what."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, MCPError
from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import INTERNAL_ERROR, INVALID_PARAMS, TextContent, ToolAnnotations

import holdfast
from holdfast import NOT_DONE, Done, aio, effect, flow, step
from holdfast.errors import RunFailed, RunHeld, StepFailed, UsageError
from holdfast.integrations.mcp import KEY_META, DurableClient, durable


class Bank:
    """A server that counts, and does what it is told."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.fails: list[Exception] = []
        self.server = MCPServer("bank", log_level="ERROR")
        self.server.add_tool(
            self.balance, annotations=ToolAnnotations(read_only_hint=True), structured_output=False
        )
        self.server.add_tool(self.pay, structured_output=False)
        self.server.add_tool(self.figures)
        self.server.resource("bank://rates")(self.rates)
        self.server.prompt()(self.greet)

    def balance(self, account: str) -> str:
        """Say how much there is."""
        return self._do("balance", account)

    def pay(self, amount: int, ctx: Context) -> str:
        """Pay."""
        return self._do("pay", (ctx.request_context.meta or {}).get(KEY_META))

    def figures(self) -> dict[str, Any]:
        """Return figures."""
        self.calls.append(("figures", None))
        return {"rows": [1, None, 2.5], "none": None, "in": {"ä": True}}

    def rates(self) -> str:
        self.calls.append(("rates", None))
        return "1.07"

    def greet(self, who: str) -> str:
        self.calls.append(("greet", who))
        return f"Greet {who}"

    def _do(self, name: str, about: Any) -> str:
        self.calls.append((name, about))
        if self.fails:
            raise self.fails.pop(0)
        return f"{name} is done"

    def client(self, **options: Any) -> DurableClient:
        return durable(Client(self.server), **options)


@pytest.fixture
def store():
    with holdfast.open("memory:") as opened:
        yield opened


def text_of(result: Any) -> str:
    return "".join(it.text for it in result.content if isinstance(it, TextContent))


def run(work: Any, run_id: str = "r") -> Any:
    """Execute a coroutine function as the flow of a run."""

    async def block() -> Any:
        async with aio.run(run_id):
            return await work()

    return asyncio.run(block())


# -- what is recorded --------------------------------------------------------------------------


def test_a_tool_that_nobody_names_is_an_effect_known_by_its_call(store) -> None:
    bank = Bank()

    async def work() -> str:
        async with bank.client() as client:
            return text_of(await client.call_tool("pay", {"amount": 3}, call_id="call_1"))

    assert run(work) == run(work) == "pay is done"
    [paid] = store.get("r").steps
    assert (paid.key, paid.name, paid.effect) == ("pay:call_1", "pay", True)
    started = next(it for it in store.history("r") if it.kind == "step_started")
    assert bank.calls == [("pay", started.body["key"])]  # The server got the key in `_meta`.
    assert started.body["args"] == {"arguments": {"amount": 3}}
    assert started.body["on_doubt"] == "hold"


def test_calls_without_an_id_are_known_by_their_place(store) -> None:
    bank = Bank()

    async def work() -> list[str]:
        async with bank.client(steps=["balance"]) as client:
            return [text_of(await client.call_tool("balance", {"account": it})) for it in "ab"]

    assert run(work) == run(work) == ["balance is done"] * 2
    assert [it.key for it in store.get("r").steps] == ["balance", "balance#2"]
    assert [it.effect for it in store.get("r").steps] == [False, False]
    assert len(bank.calls) == 2


def test_results_come_back_exactly(store) -> None:
    bank = Bank()

    async def work() -> Any:
        async with bank.client(steps=["figures"]) as client:
            return await client.call_tool("figures")

    async def bare() -> Any:
        async with Client(bank.server) as client:
            return await client.call_tool("figures")

    live, replayed, without = run(work), run(work), asyncio.run(bare())
    assert live == replayed
    assert live.structured_content == without.structured_content
    assert live.content == without.content
    assert live.is_error is False
    assert [name for name, _ in bank.calls] == ["figures", "figures"]


def test_listing_resources_and_prompts_are_read_once(store) -> None:
    bank = Bank()

    async def work() -> Any:
        async with bank.client() as client:
            tools = await client.list_tools()
            rates = await client.read_resource("bank://rates")
            prompt = await client.get_prompt("greet", {"who": "Ana"})
            return (
                [tool.name for tool in tools.tools],
                rates.contents[0].text,
                prompt.messages[0].content.text,
            )

    assert run(work) == run(work) == (["balance", "pay", "figures"], "1.07", "Greet Ana")
    assert [it.key for it in store.get("r").steps] == ["list_tools", "read_resource", "get_prompt"]
    assert bank.calls == [("rates", None), ("greet", "Ana")]


def test_reading_can_be_left_unrecorded(store) -> None:
    bank = Bank()

    async def work() -> None:
        async with bank.client(reads=False) as client:
            await client.read_resource("bank://rates")

    run(work)
    run(work, "s")
    assert store.get("r").steps == []
    assert len(bank.calls) == 2


def test_a_session_is_a_client_too(store) -> None:
    bank = Bank()

    async def work() -> Any:
        async with Client(bank.server) as client:
            session = durable(client.session, hints=True)
            names = [tool.name for tool in (await session.list_tools()).tools]
            return names, text_of(await session.call_tool("balance", {"account": "a"}))

    assert run(work) == run(work) == (["balance", "pay", "figures"], "balance is done")
    assert len(bank.calls) == 1


# -- what a server says of its tools -----------------------------------------------------------


def test_hints_count_only_if_they_are_asked_for(store) -> None:
    bank = Bank()

    async def work(**options: Any) -> None:
        async with bank.client(**options) as client:
            await client.call_tool("balance", {"account": "a"}, call_id="c1")
            await client.call_tool("pay", {"amount": 1}, call_id="c2")

    run(work)
    assert {it.key: it.effect for it in store.get("r").steps} == {
        "balance:c1": True,
        "pay:c2": True,
    }
    run(lambda: work(hints=True), "hinted")
    assert {it.key: it.effect for it in store.get("hinted").steps} == {
        "tool_hints.balance:mcp.c1": False,
        "balance:c1": False,
        "tool_hints.pay:mcp.c2": False,
        "pay:c2": True,
    }


class Cut:
    """A client that is interrupted when the server has done what it was asked."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    async def __aenter__(self) -> Client:
        return await self._client.__aenter__()

    async def __aexit__(self, *error: object) -> bool | None:
        return await self._client.__aexit__(*error)

    async def call_tool(self, *args: Any, **options: Any) -> Any:
        await self._client.call_tool(*args, **options)
        raise KeyboardInterrupt


def test_a_server_cannot_call_an_effect_in_doubt_harmless_afterwards(store) -> None:
    bank = Bank()

    async def work(client: Any) -> None:
        async with durable(client, hints=True) as made:
            await made.call_tool("pay", {"amount": 1}, call_id="c1")

    with pytest.raises(KeyboardInterrupt):
        run(lambda: work(Cut(Client(bank.server))))
    lying = MCPServer("bank", log_level="ERROR")
    lying.add_tool(bank.pay, annotations=ToolAnnotations(read_only_hint=True))
    with pytest.raises(RunHeld) as held:
        run(lambda: work(Client(lying)))
    assert held.value.reason == "in_doubt"
    assert len(bank.calls) == 1


def test_options_of_effects_are_those_of_the_decorator(store) -> None:
    bank = Bank()
    bank.fails = [MCPError(INTERNAL_ERROR, "lost")]
    asked: list[int] = []

    def look(amount: int) -> Any:
        asked.append(amount)
        return Done({"content": [{"type": "text", "text": "it was paid"}]})

    async def work() -> str:
        async with bank.client(effects={"pay": {"on_doubt": look}}) as client:
            return text_of(await client.call_tool("pay", {"amount": 3}, call_id="c1"))

    assert run(work) == "it was paid"
    assert (asked, len(bank.calls)) == ([3], 1)


def test_names_that_fit_no_step_key_are_changed(store) -> None:
    server = MCPServer("odd", log_level="ERROR")
    server.add_tool(lambda: "ok", name="files/read", structured_output=False)

    async def work() -> str:
        async with durable(Client(server), steps=["files/read"]) as client:
            return text_of(await client.call_tool("files/read"))

    assert run(work) == "ok"
    assert store.get("r").steps[0].key.startswith("files.read~")


# -- errors ------------------------------------------------------------------------------------


def test_an_error_result_is_an_answer_and_recorded_as_it_is(store) -> None:
    bank = Bank()
    bank.fails = [ToolError("no such account")]

    async def work() -> Any:
        async with bank.client() as client:
            result = await client.call_tool("pay", {"amount": 1}, call_id="c1")
            return result.is_error, text_of(result)

    live = run(work)
    assert live == run(work)
    assert live[0] is True
    assert "no such account" in live[1]
    assert len(bank.calls) == 1
    assert store.get("r").status == "completed"


def test_a_refusal_of_the_server_is_raised_alike_live_and_replayed(store) -> None:
    bank = Bank()
    bank.fails = [MCPError(INVALID_PARAMS, "amount is too odd", {"amount": 1})]

    async def work() -> Any:
        async with bank.client() as client:
            try:
                await client.call_tool("pay", {"amount": 1}, call_id="c1")
            except MCPError as error:
                return error.code, error.message, error.data
            return None

    assert run(work) == run(work) == (INVALID_PARAMS, "amount is too odd", {"amount": 1})
    assert len(bank.calls) == 1


def test_bad_arguments_are_told_alike(store) -> None:
    bank = Bank()

    async def work() -> Any:
        async with bank.client() as client:
            result = await client.call_tool("pay", {"amount": "many"}, call_id="c1")
            return result.is_error, text_of(result)

    live = run(work)
    assert live == run(work)
    assert live[0] is True
    assert bank.calls == []


def test_another_error_fails_a_step_and_leaves_an_effect_in_doubt(store) -> None:
    bank = Bank()
    bank.fails = [MCPError(INTERNAL_ERROR, "lost"), MCPError(INTERNAL_ERROR, "lost")]

    async def work() -> Any:
        async with bank.client(steps=["balance"]) as client:
            try:
                await client.call_tool("balance", {"account": "a"}, call_id="c1")
            except StepFailed as error:
                said = error.type_name, "lost" in error.message
            await client.call_tool("pay", {"amount": 1}, call_id="c2")
            return said

    with pytest.raises(RunHeld) as held:
        run(work)
    assert (held.value.reason, held.value.step) == ("in_doubt", "pay:c2")
    store.settle("r", "pay:c2", NOT_DONE, actor="ana")
    assert run(work) == ("MCPError", True)
    keys = [about for name, about in bank.calls if name == "pay"]
    assert len(keys) == 2
    assert keys[0] == keys[1]  # The same key again: the server can tell.


def test_what_ends_the_block_of_a_client_is_no_group(store) -> None:
    bank = Bank()

    async def work() -> None:
        async with bank.client():
            raise LookupError("mine")

    with pytest.raises((LookupError, RunFailed)) as ended:
        run(work)
    assert "LookupError: mine" in str(ended.value) or str(ended.value) == "mine"
    assert not isinstance(ended.value, BaseExceptionGroup)


def test_an_effect_inside_a_step_tells_the_way_out(store) -> None:
    bank = Bank()

    async def work() -> str:
        async with bank.client(steps=["balance"]) as client:

            async def both() -> str:
                return text_of(await client.call_tool("balance", {"account": "a"})) + text_of(
                    await client.call_tool("pay", {"amount": 1})
                )

            return await aio.run_step("both", both)

    with pytest.raises(Exception, match=r"steps=\['pay'\].*KEY_META"):
        run(work)
    assert [name for name, _ in bank.calls] == ["balance"]


def test_a_bare_client_inside_an_effect_of_the_user(store) -> None:
    bank = Bank()

    @effect(name="mc.pay", needs_approval=False)
    async def pay(amount: int) -> str:
        async with Client(bank.server) as client:
            meta = {KEY_META: holdfast.idempotency_key()}
            return text_of(await client.call_tool("pay", {"amount": amount}, meta=meta))

    async def work() -> str:
        return await pay(3)

    assert run(work) == run(work) == "pay is done"
    assert bank.calls[0][1].startswith("hf_")


# -- outside, beside, changed ------------------------------------------------------------------


def test_outside_a_run_nothing_is_recorded(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    bank = Bank()

    async def work() -> None:
        async with bank.client() as client:
            await client.call_tool("pay", {"amount": 1}, call_id="c1")
            await client.call_tool("pay", {"amount": 1}, call_id="c1")
            await client.list_tools()
            await client.read_resource("bank://rates")
            assert client.server_info is not None  # The rest is the client's own.

    asyncio.run(work())
    assert bank.calls == [("pay", None), ("pay", None), ("rates", None)]
    assert list(tmp_path.iterdir()) == []


def test_other_arguments_under_a_recorded_call_hold_the_run(store) -> None:
    bank = Bank()
    amount = [1]

    async def work() -> None:
        async with bank.client() as client:
            await client.call_tool("pay", {"amount": amount[0]}, call_id="c1")
            if amount == [1]:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(work)
    amount[0] = 2
    with pytest.raises(RunHeld) as held:
        run(work)
    assert held.value.reason == "diverged"
    assert "pay:c1" in str(held.value)
    assert len(bank.calls) == 1


def test_wrong_use_is_said_at_once() -> None:
    with pytest.raises(UsageError, match="lists of tool names"):
        durable(None, steps="balance")
    with pytest.raises(UsageError, match="pay: a tool cannot be both"):
        durable(None, steps=["pay"], effects=["pay"])


# -- long conversations ------------------------------------------------------------------------


@step(name="mc.model")
def think(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"role": "assistant", "content": f"turn {len(messages)}: " + "words " * 80}


@flow(name="mc.long")
async def long(turns: int) -> int:
    server = MCPServer("long", log_level="ERROR")
    server.add_tool(
        lambda n: f"page {n}: " + "text " * 100, name="read_page", structured_output=False
    )
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Read it all."}]
    async with durable(Client(server), steps=["read_page"]) as client:
        for turn in range(turns):
            messages.append(await think.aio(messages))
            page = await client.call_tool("read_page", {"n": turn}, call_id=f"call_{turn}")
            messages.append({"role": "tool", "content": text_of(page)})
    return len(json.dumps(messages))


def test_500_turns_cost_no_more_than_twice_their_messages(tmp_path: Path) -> None:
    cost: dict[int, int] = {}
    size, messages = 0, 0
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db") as store:
        for turns in (1, 250, 500):
            messages = asyncio.run(long.run(f"r{turns}", turns))
            copy = tmp_path / f"{turns}.copy"
            store.backup(str(copy))
            cost[turns] = copy.stat().st_size - size
            size += cost[turns]
    assert cost[500] <= 2 * messages, (cost, messages)
    assert cost[500] - cost[250] <= 1.5 * cost[250], cost


def test_tools_and_arguments_may_have_any_name(store):
    server = MCPServer("odd", log_level="ERROR")
    calls: list[str] = []
    breaks = [True]

    def odd(self: str, self_: str = "") -> str:
        calls.append(self)
        return f"{self}-{self_}"

    names = ["odd", "n" * 300, "a/b#c[1]"]
    for name in names:
        server.add_tool(odd, name=name, structured_output=False)

    @flow(name="mc.odd")
    async def play() -> list[str]:
        async with durable(Client(server), steps=names) as client:
            found = [
                text_of(await client.call_tool(name, {"self": "s", "self_": "t"}, call_id="c"))
                for name in names
            ]
        if breaks and breaks.pop():
            raise OSError("the end")
        return found

    with pytest.raises(RunFailed, match="the end"):
        asyncio.run(play.run("r"))
    assert asyncio.run(play.run("r")) == ["s-t"] * 3
    assert calls == ["s"] * 3
    assert len({it.key for it in store.get("r").steps}) == 3
