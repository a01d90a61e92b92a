"""Errors and other ends of tools and models: the same live and replayed."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic_ai import Agent, ModelRetry
from pydantic_ai.exceptions import ModelHTTPError, UnexpectedModelBehavior, UserError
from pydantic_ai.models.fallback import FallbackModel
from pydantic_ai.models.function import FunctionModel

import holdfast
from holdfast import effect, flow
from holdfast.errors import RunFailed, RunHeld
from holdfast.integrations.pydantic_ai import Durable
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.pydantic_ai.support import durable, keys, model, twice

LOOKUP = CallTools(("lookup", {"order": "42"}, "call_a"))


@pytest.fixture
def store() -> Iterator[holdfast.types.Store]:
    with holdfast.open("memory:") as opened:
        yield opened


def told(server: FakeModelServer, turn: int) -> str:
    """What the model was told in its last message."""
    return next(it for it in server.requests if it.turn == turn).body["messages"][-1]["content"]


def test_a_tool_that_asks_for_another_try_is_recorded_as_such(store: holdfast.types.Store) -> None:
    calls = []

    def lookup(order: str) -> str:
        calls.append(order)
        if len(calls) == 1:
            raise ModelRetry("say it again")
        return "one lamp"

    again = CallTools(("lookup", {"order": "42"}, "call_b"))
    with FakeModelServer([LOOKUP, again, Say("A lamp.")]) as server:
        agent = durable(server, lookup)
        live, replayed = asyncio.run(twice(lambda: agent.run("What is it?")))
        assert live.output == replayed.output == "A lamp."
        assert server.count == 3
        assert "say it again" in told(server, 1)
        assert server.problems == []
    assert len(calls) == 2
    assert keys(store.get("r-1").steps) == [
        "model:support",
        "lookup:call_a",
        "model:support#2",
        "lookup:call_b",
        "model:support#3",
    ]


def test_wrong_arguments_of_the_model_never_reach_the_tool(store: holdfast.types.Store) -> None:
    calls = []

    def lookup(order: int) -> str:
        calls.append(order)
        return "one lamp"

    wrong = CallTools(("lookup", {"order": "no number"}, "call_a"))
    right = CallTools(("lookup", {"order": 42}, "call_b"))
    with FakeModelServer([wrong, right, Say("A lamp.")]) as server:
        agent = durable(server, lookup)
        live, replayed = asyncio.run(twice(lambda: agent.run("What is it?")))
        assert live.output == replayed.output == "A lamp."
        assert server.count == 3
    assert calls == [42]
    assert "lookup:call_b" in keys(store.get("r-1").steps)
    assert "lookup:call_a" not in keys(store.get("r-1").steps)


def test_an_error_of_a_tool_is_recorded_and_ends_the_agent(store: holdfast.types.Store) -> None:
    calls = []

    def lookup(order: str) -> str:
        calls.append(order)
        raise ConnectionError("the shop is closed")

    with FakeModelServer([LOOKUP]) as server:
        agent = durable(server, lookup)
        live, replayed = asyncio.run(twice(lambda: agent.run("What is it?")))
        assert server.count == 1
    assert live == replayed == ("ConnectionError", "the shop is closed")
    assert len(calls) == 1
    failed = {it.key: it.status for it in store.get("r-1").steps}
    assert failed["lookup:call_a"] == "failed"


def test_a_failed_run_that_is_taken_up_again_calls_the_tool_again(
    store: holdfast.types.Store,
) -> None:
    calls = []

    def lookup(order: str) -> str:
        calls.append(order)
        if len(calls) == 1:
            raise ConnectionError("the shop is closed")
        return "one lamp"

    with FakeModelServer([LOOKUP, Say("A lamp.")]) as server:
        support = durable(server, lookup)

        @flow(name="taken_up")
        async def agent() -> str:
            return (await support.run("What is it?")).output

        async def both() -> str:
            with pytest.raises(RunFailed, match="the shop is closed"):
                await agent.run("r-1")
            return await agent.run("r-1")

        assert asyncio.run(both()) == "A lamp."
        assert server.count == 2


@pytest.mark.parametrize("status", [500, 529])
def test_an_error_of_the_provider_is_the_same_live_and_replayed(
    store: holdfast.types.Store, status: int
) -> None:
    async def work(agent) -> int:
        try:
            return (await agent.run("Hello")).output
        except ModelHTTPError as error:
            return error.status_code

    with FakeModelServer([Say("Hi.")]) as server:
        server.fail_next(status)
        agent = durable(server)
        live, replayed = asyncio.run(twice(lambda: work(agent)))
        assert live == replayed == status
        assert server.count == 1
    assert [it.status for it in store.get("r-1").steps if it.name == "model"] == ["failed"]


class Odd(Exception):
    """An error of the program."""

    def __init__(self, number: int) -> None:
        super().__init__(f"the number {number}")
        self.number = number


RAISED = {
    "http": lambda: ModelHTTPError(429, "test", {"error": "slow down"}),
    "behavior": lambda: UnexpectedModelBehavior("no JSON", '{"a": 1}'),
    "user": lambda: UserError("no such model"),
    "odd": lambda: Odd(7),
}
HELD = ("status_code", "model_name", "body", "message", "number")


@pytest.mark.parametrize("which", [*RAISED, "all"])
def test_an_error_of_a_model_is_the_same_in_a_run_as_outside(
    store: holdfast.types.Store, which: str
) -> None:
    """`all`: each model of a fallback fails."""
    calls = []

    def answer(messages: Any, info: Any) -> Any:
        calls.append(which)
        error = RAISED["http" if which == "all" else which]()
        raise error

    async def work() -> Any:
        one = FunctionModel(answer)
        asked = FallbackModel(one, FunctionModel(answer)) if which == "all" else one
        agent = Agent(asked, name="support", capabilities=[Durable()])
        try:
            return (await agent.run("Hello")).output
        except Exception as error:
            members = [type(it) for it in getattr(error, "exceptions", ())]
            held = [getattr(error, name, None) for name in HELD]
            return type(error), str(error), held, members

    outside = asyncio.run(work())
    asked = len(calls)
    assert asyncio.run(twice(work)) == (outside, outside)
    assert len(calls) == 2 * asked
    assert [it.status for it in store.get("r-1").steps if it.name == "model"] == ["failed"]


def test_what_the_sdk_tries_again_is_one_step(store: holdfast.types.Store) -> None:
    with FakeModelServer([Say("Hi.")]) as server:
        server.fail_next(500, retry_after=0.01)
        agent = durable(server, model=model(server, max_retries=2))
        live, replayed = asyncio.run(twice(lambda: agent.run("Hello")))
        assert live.output == replayed.output == "Hi."
        assert server.count == 2
    assert keys(store.get("r-1").steps) == ["model:support"]


def test_a_person_who_says_no_is_told_to_the_model(store: holdfast.types.Store) -> None:
    @effect(name="pay_back", needs_approval=True)
    def pay_back(order: str) -> str:
        raise AssertionError("nobody said yes")

    script = [CallTools(("pay_back", {"order": "42"}, "call_a")), Say("Then not.")]
    with FakeModelServer(script) as server:
        support = durable(server, pay_back)

        @flow(name="refused")
        async def agent() -> str:
            return (await support.run("Pay it back")).output

        async def both() -> str:
            work = asyncio.create_task(agent.run("r-1"))
            async with asyncio.timeout(30):
                while not (asked := store.questions()):
                    await asyncio.sleep(0.005)
            store.reject(asked[0].run_id, asked[0].name, reason="too much", actor="ana")
            return await work

        assert asyncio.run(both()) == "Then not."
        assert "too much" in told(server, 1)
        assert server.problems == []


def test_a_changed_prompt_holds_the_run(store: holdfast.types.Store) -> None:
    said = ["Hello"]
    with FakeModelServer([Say("Hi.")]) as server:
        support = durable(server)

        @flow(name="changed")
        async def agent() -> str:
            result = await support.run(said[0])
            if said == ["Hello"]:
                raise ConnectionError
            return result.output

        with pytest.raises(RunFailed):
            asyncio.run(agent.run("r-1"))
        said[0] = "Goodbye"
        with pytest.raises(RunHeld) as held:
            asyncio.run(agent.run("r-1"))
        assert held.value.reason == "diverged"
        assert "model:support" in str(held.value)
        assert server.count == 1
    assert store.get("r-1").status == "held"


def test_an_effect_that_is_named_is_asked_about_when_it_raises(store: holdfast.types.Store) -> None:
    def send(to: str) -> str:
        raise ConnectionError("cut")

    with FakeModelServer([CallTools(("send", {"to": "ana"}, "call_a"))]) as server:
        support = durable(server, send, capability=Durable(effects=["send"]))

        @flow(name="doubted")
        async def agent() -> str:
            return (await support.run("Write to Ana")).output

        with pytest.raises(RunHeld) as held:
            asyncio.run(agent.run("r-1"))
        assert held.value.reason == "in_doubt"
    assert keys(store.get("r-1").steps) == ["model:support", "send:call_a"]
