"""What tools change in the dependencies of a run is there again after a resume."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast.integrations.pydantic_ai import Durable
from tests.integrations.pydantic_ai.support import keys, twice


@dataclass
class Deps:
    customer: str | None = None
    paid: list[str] = field(default_factory=list)
    client: Any = field(default_factory=threading.Lock)


@pytest.fixture
def store() -> Iterator[holdfast.types.Store]:
    with holdfast.open("memory:") as opened:
        yield opened


def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call each tool, one after the other."""
    at = len(messages) // 2
    if at == len(info.function_tools):
        return ModelResponse(parts=[TextPart("Done.")])
    return ModelResponse(parts=[ToolCallPart(info.function_tools[at].name, {}, f"c{at}")])


def resumed(*tools: Any) -> tuple[Any, Any]:
    """Run and replay with new dependencies: what both have in them at the end."""
    agent = Agent(
        FunctionModel(ask), name="a", deps_type=Deps, tools=tools, capabilities=[Durable()]
    )

    async def work() -> Any:
        deps = Deps()
        await agent.run("hi", deps=deps)
        return deps.customer, deps.paid

    return asyncio.run(twice(work))


def identify(ctx: RunContext[Deps]) -> str:
    ctx.deps.customer = "ana"
    return "identified"


@holdfast.effect(name="deps refund", unrecorded=("ctx",))
async def refund(ctx: RunContext[Deps]) -> str:
    ctx.deps.paid.append(f"to {ctx.deps.customer}")
    return "refunded"


def test_steps_and_effects_leave_their_traces(store: holdfast.types.Store) -> None:
    live, replayed = resumed(identify, Tool(refund, name="refund"))
    assert live == replayed == ("ana", ["to ana"])
    assert "context refund:c1" in keys(store.get("r-1").steps)


def test_what_cannot_be_kept_is_refused(store: holdfast.types.Store) -> None:
    def connect(ctx: RunContext[Deps]) -> str:
        ctx.deps.client = threading.Lock()
        return "connected"

    live, _ = resumed(connect)
    assert live[0] == "UsageError"
    assert "the tool connect changed client of the run's context" in live[1]


def test_an_effect_that_records_its_context_is_told_how_not_to(store: holdfast.types.Store) -> None:
    @holdfast.effect(name="deps pay")
    def pay(ctx: RunContext[Deps]) -> str:
        raise AssertionError("it is not called")

    live, replayed = resumed(pay)
    assert live == replayed
    assert "@effect(…, unrecorded=('ctx',))" in live[1]
