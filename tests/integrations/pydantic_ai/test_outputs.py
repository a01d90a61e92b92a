"""Output functions and validators: they are called in each life, and what they call is recorded."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic_ai import ModelRetry, TextOutput

import holdfast
from holdfast import effect
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.pydantic_ai.support import durable, keys, twice


@pytest.fixture
def store() -> Iterator[holdfast.types.Store]:
    with holdfast.open("memory:") as opened:
        yield opened


@dataclass
class Receipt:
    order: str
    note: str


def finishing(call_id: str, order: str = "42") -> CallTools:
    return CallTools(("final_result", {"order": order}, call_id))


@pytest.mark.parametrize("streamed", [False, True])
def test_an_effect_inside_an_output_function_happens_once(
    store: holdfast.types.Store, streamed: bool
) -> None:
    sent: list[str] = []
    called: list[str] = []

    @effect(name="send_receipt")
    def send(order: str) -> str:
        sent.append(order)
        return f"note {len(sent)}"

    def finish(order: str) -> Receipt:
        """End with a receipt."""
        called.append(order)
        return Receipt(order, send(order))

    async def ask(agent: Any) -> Any:
        if not streamed:
            return (await agent.run("Do it")).output
        async with agent.run_stream("Do it") as result:
            return await result.get_output()

    with FakeModelServer([finishing("call_a")]) as server:
        agent = durable(server, output_type=finish)
        live, replayed = asyncio.run(twice(lambda: ask(agent)))
        assert server.count == 1
    assert live == replayed == Receipt("42", "note 1")
    assert sent == ["42"]
    assert called == ["42", "42"]
    assert keys(store.get("r-1").steps) == ["model:support", "send_receipt:call_a"]


def test_an_effect_that_asks_for_another_try_is_told_to_the_model(
    store: holdfast.types.Store,
) -> None:
    asked: list[str] = []

    @effect(name="send_or_retry", not_done_on=(ModelRetry,))
    async def send(order: str) -> str:
        asked.append(order)
        if order == "42":
            raise ModelRetry("not this one")
        return "sent"

    async def finish(order: str) -> str:
        """End."""
        return await send(order)

    with FakeModelServer([finishing("call_a"), finishing("call_b", "43")]) as server:
        agent = durable(server, output_type=finish)
        live, replayed = asyncio.run(twice(lambda: agent.run("Do it")))
        assert server.count == 2
        assert "not this one" in str(server.requests[1].body["messages"][-1])
    assert live.output == replayed.output == "sent"
    assert asked == ["42", "43"]
    called = ["model:support", "send_or_retry:call_a", "model:support#2", "send_or_retry:call_b"]
    assert keys(store.get("r-1").steps) == called


def test_what_text_outputs_and_validators_call_is_recorded_too(store: holdfast.types.Store) -> None:
    sent: list[str] = []

    @effect(name="note_text")
    def note(text: str) -> str:
        sent.append(text)
        return f"{text} ({len(sent)})"

    with FakeModelServer([Say("Done.")]) as server:
        agent = durable(server, output_type=TextOutput(note))

        @agent.output_validator
        def check(output: str) -> str:
            return note(output)

        live, replayed = asyncio.run(twice(lambda: agent.run("Do it")))
        assert server.count == 1
    assert live.output == replayed.output == "Done. (1) (2)"
    assert sent == ["Done.", "Done. (1)"]
    called = ["model:support", "note_text:support", "note_text:support#2"]
    assert keys(store.get("r-1").steps) == called
