"""What the model is told of tools that record themselves; and output functions, which are not tools."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic_ai import ModelRetry, RunContext

import holdfast
from holdfast import effect
from holdfast.adapters import step_key
from holdfast.errors import RunHeld, UsageError
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.pydantic_ai.support import durable, twice


@pytest.fixture
def store() -> Iterator[holdfast.types.Store]:
    with holdfast.open("memory:") as opened:
        yield opened


def told(result: Any) -> list[Any]:
    """What the model got back; a retry is a part of its own in some versions only."""
    parts = [part for message in result.all_messages() for part in message.parts]
    return [part.content for part in parts if part.part_kind in ("tool-return", "retry-prompt")]


def test_an_effect_that_did_not_happen_asks_the_model_again(store: holdfast.types.Store) -> None:
    tried = []

    @effect(name="pay_known", not_done_on=(ModelRetry,))
    async def pay_known(order: str) -> str:
        """Pay an order."""
        tried.append(order)
        if len(tried) == 1:
            raise ModelRetry("order 42 is of last year")
        return "paid"

    asked = [CallTools(("pay_known", {"order": it}, f"call_{it}")) for it in ("42", "43")]
    with FakeModelServer([*asked, Say("Done.")]) as server:
        agent = durable(server, pay_known)
        live, replayed = asyncio.run(twice(lambda: agent.run("Pay")))
        assert server.count == 3
    assert live.output == replayed.output == "Done."
    assert told(live) == told(replayed) == ["order 42 is of last year", "paid"]
    assert tried == ["42", "43"]


def test_an_effect_that_may_have_happened_is_held(store: holdfast.types.Store) -> None:
    @effect(name="pay_unsure")
    async def pay_unsure(order: str) -> str:
        """Pay an order."""
        raise ModelRetry("again")

    with FakeModelServer(
        [CallTools(("pay_unsure", {"order": "42"}, "call_a")), Say("Done.")]
    ) as server:
        agent = durable(server, pay_unsure)
        with pytest.raises(RunHeld, match="may or may not have happened"):
            asyncio.run(twice(lambda: agent.run("Pay")))
        assert server.count == 1


def test_an_error_of_the_tool_itself_has_no_hint_of_ours(store: holdfast.types.Store) -> None:
    def pay(order: str) -> str:
        """Pay an order."""
        raise UsageError("orders have letters")

    with FakeModelServer([CallTools(("pay", {"order": "42"}, "call_a")), Say("Done.")]) as server:
        agent = durable(server, pay)
        live, replayed = asyncio.run(twice(lambda: agent.run("Pay")))
    assert live == replayed
    assert "orders have letters" in live[1]
    assert "metadata" not in live[1]


def test_effects_in_an_output_function_are_recorded_under_a_key(
    store: holdfast.types.Store,
) -> None:
    """The function itself is called on each replay."""
    called, paid = [], []

    @effect(name="pay_at_the_end")
    async def pay_at_the_end(order: str) -> str:
        paid.append(order)
        return f"paid {order}"

    async def finish(ctx: RunContext[None], order: str) -> str:
        """Pay, and end."""
        called.append(order)
        with step_key(ctx.tool_call_id or "finish"):
            return await pay_at_the_end(order)

    with FakeModelServer([CallTools(("final_result", {"order": "42"}, "call_a"))]) as server:
        agent = durable(server, output_type=finish)
        live, replayed = asyncio.run(twice(lambda: agent.run("Pay")))
    assert live.output == replayed.output == "paid 42"
    assert called == ["42", "42"]
    assert paid == ["42"]
    assert "pay_at_the_end:call_a" in {step.key for step in store.get("r-1").steps}
