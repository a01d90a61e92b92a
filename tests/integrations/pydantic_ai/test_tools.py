"""Tools of all kinds: effects, approvals, agents inside tools, agents side by side."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from anthropic import AsyncAnthropic
from pydantic_ai import Agent, FunctionToolset, RunContext, Tool
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.providers.anthropic import AnthropicProvider

import holdfast
from holdfast import effect, flow
from holdfast.errors import RunFailed
from holdfast.integrations.pydantic_ai import Durable
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.pydantic_ai.support import ONE_REQUEST, durable, keys, model, twice

PAY = CallTools(("pay", {"order": "42"}, "call_a"))


@pytest.fixture
def store() -> Iterator[holdfast.types.Store]:
    with holdfast.open("memory:") as opened:
        yield opened


def called(store: holdfast.types.Store, run_id: str = "r-1") -> set[str]:
    return set(keys(store.get(run_id).steps))


def test_an_effect_as_a_tool_keeps_its_policy(store: holdfast.types.Store) -> None:
    paid = []

    @effect(name="pay", key="order:{order}")
    async def pay(order: str) -> str:
        """Pay an order."""
        paid.append(holdfast.idempotency_key())
        return "paid"

    with FakeModelServer([PAY, Say("Done.")]) as server:
        agent = durable(server, pay)
        live, replayed = asyncio.run(twice(lambda: agent.run("Pay 42")))
        assert live.output == replayed.output == "Done."
        tool = server.requests[0].body["tools"][0]["function"]
        assert tool["description"] == "Pay an order."
        assert list(tool["parameters"]["properties"]) == ["order"]
    assert len(paid) == 1
    assert called(store) == {"model:support", "pay:call_a", "model:support#2"}
    started = [it for it in store.history("r-1") if it.step == "pay:call_a"]
    assert [it.kind for it in started] == ["step_started", "step_completed"]


def test_an_effect_inside_a_tool_needs_a_word_about_it(store: holdfast.types.Store) -> None:
    paid = []

    @effect(name="transfer")
    async def transfer(order: str) -> str:
        paid.append(order)
        return "paid"

    async def pay(ctx: RunContext[None], order: str) -> str:
        return await transfer(order)

    with FakeModelServer([PAY, Say("Done.")]) as server:
        agent = durable(server, pay)
        told, _ = asyncio.run(twice(lambda: agent.run("Pay 42"), run_id="r-0"))
        assert 'metadata={"holdfast": False}' in told[1], told
        assert paid == []
        agent = durable(server, Tool(pay, metadata={"holdfast": False}))
        live, replayed = asyncio.run(twice(lambda: agent.run("Pay 42")))
        assert live.output == replayed.output == "Done."
    assert paid == ["42"]
    assert called(store) == {"model:support", "transfer:call_a", "model:support#2"}


def answer(store: holdfast.types.Store, said: bool) -> Any:
    async def answered() -> None:
        async with asyncio.timeout(30):
            while not (asked := store.questions()):
                await asyncio.sleep(0.005)
        store.answer(asked[0].run_id, asked[0].name, said, actor="ana")

    return answered()


@pytest.mark.parametrize("said", [True, False])
def test_a_person_decides_about_a_call(store: holdfast.types.Store, said: bool) -> None:
    paid = []

    def pay(order: str) -> str:
        paid.append(order)
        return "paid"

    with FakeModelServer([PAY, Say("Done.")]) as server:
        support = durable(server, Tool(pay, requires_approval=True))

        @flow(name="decided")
        async def agent() -> str:
            return (await support.run("Pay 42")).output

        async def work() -> str:
            output, _ = await asyncio.gather(agent.run("r-1"), answer(store, said))
            return output

        assert asyncio.run(work()) == "Done."
        last = server.requests[-1].body["messages"][-1]
        assert last["role"] == "tool"
        assert last["tool_call_id"] == "call_a"
        assert server.problems == []
    assert paid == (["42"] if said else [])


def test_agents_inside_tools_are_recorded_call_by_call_if_they_say_so(
    store: holdfast.types.Store,
) -> None:
    script = [CallTools(("research", {"topic": "lamps"}, "call_a")), Say("Done.")]
    with FakeModelServer(script) as server, FakeModelServer([Say("Lamps are bright.")]) as inner:

        async def work(metadata: dict[str, Any], run_id: str) -> None:
            researcher = Agent(
                model(inner, max_retries=0), name="researcher", capabilities=[Durable()]
            )

            async def research(topic: str) -> str:
                return (await researcher.run(topic)).output

            agent = durable(server, Tool(research, metadata=metadata))
            live, replayed = await twice(lambda: agent.run("Find out"), run_id=run_id)
            assert live.output == replayed.output == "Done."

        asyncio.run(work({}, "whole"))
        asyncio.run(work({"holdfast": False}, "parts"))
        assert (server.count, inner.count) == (4, 2)
    assert called(store, "whole") == {"model:support", "research:call_a", "model:support#2"}
    assert called(store, "parts") == {"model:support", "model:call_a.researcher", "model:support#2"}


def test_agents_side_by_side(store: holdfast.types.Store) -> None:
    with FakeModelServer([Say("Hi.")]) as server:
        agent = durable(server)

        async def named() -> list[str]:
            runs = (agent.run(name, metadata={"holdfast": name}) for name in ("left", "right"))
            return [run.output for run in await asyncio.gather(*runs)]

        async def branches() -> list[str]:
            runs = (agent.run(name) for name in ("left", "right"))
            return [run.output for run in await holdfast.aio.gather(*runs)]

        assert asyncio.run(twice(named, run_id="named")) == (["Hi."] * 2, ["Hi."] * 2)
        agent = durable(server)
        assert asyncio.run(twice(branches, run_id="branches")) == (["Hi."] * 2, ["Hi."] * 2)
        assert server.count == 4
    assert called(store, "named") == {"model:left", "model:right"}


def test_anthropic(store: holdfast.types.Store) -> None:
    looked = []

    def lookup(order: str) -> str:
        looked.append(order)
        return "a lamp"

    script = [CallTools(("lookup", {"order": "42"}, "call_a")), Say("A lamp.")]
    with FakeModelServer(script) as server:
        client = AsyncAnthropic(
            base_url=server.url, api_key="sk-canary", default_headers=ONE_REQUEST
        )
        provider = AnthropicProvider(anthropic_client=client)
        agent = durable(server, lookup, model=AnthropicModel("claude-test", provider=provider))
        live, replayed = asyncio.run(twice(lambda: agent.run("What is it?")))
        assert live.output == replayed.output == "A lamp."
        assert live.usage == replayed.usage
        assert server.counts == {"messages": 2}
        assert server.problems == []
    assert looked == ["42"]
    assert called(store) == {"model:support", "lookup:call_a", "model:support#2"}


def test_tokens_are_counted_once_and_secrets_are_not_stored(tmp_path: Any) -> None:
    with (
        FakeModelServer([Say("Hi.")]) as server,
        holdfast.open(f"sqlite:///{tmp_path}/runs.db", default=True) as store,
    ):
        agent = durable(server, model_settings={"extra_headers": {"x-token": "header-canary"}})
        live, _ = asyncio.run(twice(lambda: agent.run("Hello")))
        used = store.get("r-1").totals.usage
        assert used["input_tokens"] == live.usage.input_tokens > 0
        assert used["output_tokens"] == live.usage.output_tokens > 0
        assert server.requests[0].headers["x-token"] == "header-canary"
    stored = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"Hello" in stored
    assert b"canary" not in stored


def test_toolsets_without_an_id_are_refused_with_a_reason(store: holdfast.types.Store) -> None:
    toolset: FunctionToolset[None] = FunctionToolset([lambda: None])
    with pytest.raises(Exception, match="Holdfast"):
        Agent("test", name="support", toolsets=[toolset], capabilities=[Durable()])


def test_what_cannot_be_read_back_is_no_error_of_the_model(store: holdfast.types.Store) -> None:
    from holdfast.errors import UsageError
    from holdfast.integrations.pydantic_ai._plain import Codec

    with pytest.raises(UsageError, match="cannot read a value of the journal"):
        Codec().load(int, "no number")


def test_a_run_that_is_stopped_passes_through_the_framework(store: holdfast.types.Store) -> None:
    def lookup(order: str) -> str:
        store.cancel("r-1", actor="ana")
        return "a lamp"

    with FakeModelServer([CallTools(("lookup", {"order": "42"}, "call_a")), Say("No.")]) as server:
        support = durable(server, lookup)

        @flow(name="stopped")
        async def agent() -> str:
            return (await support.run("What is it?")).output

        with pytest.raises(holdfast.errors.RunCancelled):
            asyncio.run(agent.run("r-1"))
        assert server.count == 1
    assert store.get("r-1").status == "cancelled"


def test_a_failure_is_the_one_of_the_agent(store: holdfast.types.Store) -> None:
    with FakeModelServer([]) as server:
        support = durable(server)

        @flow(name="failed")
        async def agent() -> str:
            return (await support.run("What is it?")).output

        with pytest.raises(RunFailed, match="status_code: 400"):
            asyncio.run(agent.run("r-1"))
