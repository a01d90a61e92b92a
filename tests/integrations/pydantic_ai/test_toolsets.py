"""Every way that a tool can reach an agent: its call is recorded, executed once, and replayed."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pydantic_ai import Agent, FunctionToolset, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    RetryPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.toolsets import AbstractToolset, DynamicToolset, ToolsetTool, WrapperToolset

import holdfast
from holdfast.integrations.pydantic_ai import Durable
from tests.integrations.pydantic_ai.support import keys, twice

Pay = Callable[..., Any]
Run = Callable[[Any], Any]


@pytest.fixture
def store() -> Iterator[holdfast.types.Store]:
    with holdfast.open("memory:") as opened:
        yield opened


def ask(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    """Call `pay` once, or the output function of this name; then say that it is done."""
    parts = [part for message in messages for part in message.parts]
    if any(isinstance(part, ToolReturnPart | RetryPromptPart) for part in parts):
        return ModelResponse(parts=[TextPart("Done.")])
    (tool,) = [*info.function_tools, *info.output_tools]
    return ModelResponse(parts=[ToolCallPart(tool.name, {"to": "bob"}, "c1")])


def made(**options: Any) -> Agent[None, Any]:
    capabilities = [Durable(), *options.pop("capabilities", ())]
    return Agent(FunctionModel(ask), name="a", capabilities=capabilities, **options)


def functions(pay: Pay, **options: Any) -> FunctionToolset[None]:
    toolset = FunctionToolset[None](**options)
    toolset.add_function(pay, name="pay")
    return toolset


class OwnToolset(AbstractToolset[None]):
    """A toolset of a kind that Pydantic AI does not know, which is another object in each run."""

    def __init__(self, inner: AbstractToolset[None], *, is_in_run: bool = False) -> None:
        self.inner = inner
        self.is_in_run = is_in_run

    @property
    def id(self) -> str | None:
        return None

    async def for_run(self, ctx: RunContext[None]) -> AbstractToolset[None]:
        return OwnToolset(self.inner, is_in_run=True)

    async def get_tools(self, ctx: RunContext[None]) -> dict[str, ToolsetTool[None]]:
        return await self.inner.get_tools(ctx)

    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[None], tool: ToolsetTool[None]
    ) -> Any:
        assert self.is_in_run
        return await self.inner.call_tool(name, tool_args, ctx, tool)


class Wrapping(WrapperToolset[None]):
    pass


class Giving(AbstractCapability[None]):
    """A capability that brings a toolset."""

    def __init__(self, toolset: AbstractToolset[None]) -> None:
        self.toolset = toolset

    def get_toolset(self) -> AbstractToolset[None]:
        return self.toolset


def constructor(pay: Pay) -> Run:
    agent = made(tools=[Tool(pay, name="pay")])
    return lambda _: agent.run("hi")


def decorator(pay: Pay) -> Run:
    agent = made()
    agent.tool_plain(name="pay")(pay)
    return lambda _: agent.run("hi")


def constructed_toolset(pay: Pay) -> Run:
    agent = made(toolsets=[functions(pay, id="own")])
    return lambda _: agent.run("hi")


def runtime_toolset(pay: Pay) -> Run:
    agent = made()
    return lambda _: agent.run("hi", toolsets=[functions(pay, id="late")])


def runtime_toolset_without_id(pay: Pay) -> Run:
    agent = made()
    return lambda _: agent.run("hi", toolsets=[functions(pay)])


def runtime_wrapped(pay: Pay) -> Run:
    agent = made()
    toolset = Wrapping(functions(pay).prefixed("x").renamed({"pay": "x_pay"}))
    return lambda _: agent.run("hi", toolsets=[toolset])


def override_tools(pay: Pay) -> Run:
    agent = made()

    async def run(_: Any) -> Any:
        with agent.override(tools=[Tool(pay, name="pay")]):
            return await agent.run("hi")

    return run


def override_toolsets(pay: Pay) -> Run:
    agent = made(toolsets=[functions(pay, id="own")])

    async def run(_: Any) -> Any:
        with agent.override(toolsets=[functions(pay, id="own")]):
            return await agent.run("hi")

    return run


def dynamic(pay: Pay) -> Run:
    agent = made(toolsets=[DynamicToolset(lambda _: functions(pay), id="dynamic")])
    return lambda _: agent.run("hi")


def dynamic_once(pay: Pay) -> Run:
    toolset = DynamicToolset[None](lambda _: functions(pay), id="dynamic", per_run_step=False)
    agent = made(toolsets=[toolset])
    return lambda _: agent.run("hi")


def runtime_dynamic(pay: Pay) -> Run:
    agent = made()
    toolset = DynamicToolset[None](lambda _: functions(pay), per_run_step=False)
    return lambda _: agent.run("hi", toolsets=[toolset])


def decorated_toolset(pay: Pay) -> Run:
    agent = made()

    @agent.toolset
    async def shop(_: RunContext[None]) -> FunctionToolset[None]:
        return functions(pay)

    return lambda _: agent.run("hi")


def own_kind(pay: Pay) -> Run:
    agent = made(toolsets=[OwnToolset(functions(pay))])
    return lambda _: agent.run("hi")


def runtime_own_kind(pay: Pay) -> Run:
    agent = made()
    return lambda _: agent.run("hi", toolsets=[OwnToolset(functions(pay))])


def capability(pay: Pay) -> Run:
    agent = made(capabilities=[Giving(functions(pay, id="given"))])
    return lambda _: agent.run("hi")


def runtime_capability(pay: Pay) -> Run:
    agent = made()
    return lambda _: agent.run("hi", capabilities=[Giving(functions(pay, id="given"))])


def streamed(pay: Pay) -> Run:
    agent = made()

    async def run(_: Any) -> Any:
        async with agent.iter("hi", toolsets=[functions(pay)]) as steps:
            async for _step in steps:
                pass
        return steps.result

    return run


WAYS: list[Callable[[Pay], Run]] = [
    constructor,
    decorator,
    constructed_toolset,
    runtime_toolset,
    runtime_toolset_without_id,
    runtime_wrapped,
    override_tools,
    override_toolsets,
    dynamic,
    dynamic_once,
    runtime_dynamic,
    decorated_toolset,
    own_kind,
    runtime_own_kind,
    capability,
    runtime_capability,
    streamed,
]


@pytest.mark.parametrize("kind", ["step", "effect", "async effect"])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_tool_is_recorded_whichever_way_it_comes(
    store: holdfast.types.Store, way: Callable[[Pay], Run], kind: str
) -> None:
    paid: list[str] = []

    def pay(to: str) -> str:
        paid.append(to)
        return "paid"

    async def pay_later(to: str) -> str:
        return pay(to)

    given: Pay = pay
    if kind == "effect":
        given = holdfast.effect(name="late_pay")(pay)
    if kind == "async effect":
        given = holdfast.effect(name="late_pay_async")(pay_later)
    run = way(given)
    live, replayed = asyncio.run(twice(lambda: run(None)))
    assert (live.output, replayed.output) == ("Done.", "Done.")
    assert paid == ["bob"]
    recorded = {step.key: step.effect for step in store.get("r-1").steps if step.key[-3:] == ":c1"}
    name = {"step": "pay", "effect": "late_pay", "async effect": "late_pay_async"}[kind]
    assert recorded == {f"{name}:c1": kind != "step"}


def test_what_an_output_function_does_is_recorded(store: holdfast.types.Store) -> None:
    paid: list[str] = []

    @holdfast.effect(name="late_transfer")
    def transfer(to: str) -> str:
        paid.append(to)
        return "paid"

    def pay(to: str) -> str:
        return transfer(to)

    agent = made(output_type=[pay])
    live, replayed = asyncio.run(twice(lambda: agent.run("hi")))
    assert live.output == replayed.output == "paid"
    assert paid == ["bob"]
    assert "late_transfer:c1" in keys(store.get("r-1").steps)


def test_two_dynamic_toolsets_of_one_id_are_refused(store: holdfast.types.Store) -> None:
    def late() -> DynamicToolset[None]:
        return DynamicToolset(lambda _: functions(lambda to: to), id="same")

    agent = made(toolsets=[DynamicToolset(lambda _: None, id="same")])

    async def refused() -> None:
        async with holdfast.aio.run("r-1", store=store):
            await agent.run("hi", toolsets=[late()])

    with pytest.raises(UserError, match="same"):
        asyncio.run(refused())


def test_outside_a_run_late_toolsets_stay_as_they_are() -> None:
    paid: list[str] = []

    def pay(to: str) -> str:
        paid.append(to)
        return "paid"

    for way in WAYS:
        run = way(pay)
        assert asyncio.run(run(None)).output == "Done."
    assert paid == ["bob"] * len(WAYS)
