"""What tools change in the context of a run is there again after a resume."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest
from agents import Agent, RunContextWrapper, Runner, function_tool

import holdfast
from holdfast import effect, flow
from holdfast.errors import RunFailed
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.openai_agents.made import Loop, helper, keys


@dataclass
class Ctx:
    customer: str | None = None
    paid: list[str] = field(default_factory=list)
    client: Any = field(default_factory=threading.Lock)


def resumed(go: Loop, agent: Agent[Any]) -> list[Ctx]:
    """Run, break at the end, and take it up with a new context: both contexts at the end."""
    play, seen = played(agent)
    with pytest.raises(RunFailed, match="the end"):
        go(play.run("r"))
    go(play.run("r"))
    return seen


def played(agent: Agent[Any]) -> tuple[Any, list[Ctx]]:
    """Return a flow that breaks the first time, and where the contexts of its runs are found."""
    seen: list[Ctx] = []

    @flow(name="with context")
    async def play() -> None:
        seen.append(Ctx())
        await Runner.run(agent, "Go on.", context=seen[-1])
        if len(seen) == 1:
            raise OSError("the end")

    return play, seen


def shown(ctx: Ctx) -> tuple[str | None, list[str]]:
    return ctx.customer, ctx.paid


@function_tool
def identify(ctx: RunContextWrapper[Ctx], name: str) -> str:
    ctx.context.customer = name
    return "identified"


@function_tool
@effect(name="context refund", unrecorded=("ctx",))
def refund(ctx: RunContextWrapper[Ctx], order: str) -> str:
    ctx.context.paid.append(f"{order} to {ctx.context.customer}")
    return "refunded"


def test_steps_and_effects_leave_their_traces(store: holdfast.types.Store, go: Loop) -> None:
    script = [
        CallTools(("identify", {"name": "ana"}, "call_1")),
        CallTools(("refund", {"order": "7"}, "call_2")),
        Say("Done."),
    ]
    with FakeModelServer(script) as server:
        live, replayed = resumed(go, helper(server, identify, refund))
        assert server.count == 3
    assert shown(live) == shown(replayed) == ("ana", ["7 to ana"])
    assert "context refund:call_2" in keys(store, "r")


def test_tools_side_by_side_leave_what_the_last_one_wrote(
    store: holdfast.types.Store, go: Loop
) -> None:
    turns: list[asyncio.Event] = []

    @function_tool
    async def slow(ctx: RunContextWrapper[Ctx]) -> str:
        turns.append(asyncio.Event())
        await turns[0].wait()
        ctx.context.customer = "slow"
        ctx.context.paid.append("slow")
        return "slow"

    @function_tool
    async def quick(ctx: RunContextWrapper[Ctx]) -> str:
        ctx.context.customer = "quick"
        ctx.context.paid.append("quick")
        turns[0].set()
        return "quick"

    script = [CallTools(("slow", {}, "call_1"), ("quick", {}, "call_2")), Say("Done.")]
    with FakeModelServer(script) as server:
        live, replayed = resumed(go, helper(server, slow, quick))
    assert shown(live) == shown(replayed) == ("slow", ["quick", "slow"])
    assert len(turns) == 1


def test_what_cannot_be_kept_is_refused(store: holdfast.types.Store, go: Loop) -> None:
    @function_tool
    def connect(ctx: RunContextWrapper[Ctx]) -> str:
        ctx.context.client = threading.Lock()
        return "connected"

    with (
        FakeModelServer([CallTools(("connect", {}, "call_1")), Say("Done.")]) as server,
        pytest.raises(RunFailed, match="the tool connect changed client"),
    ):
        go(played(helper(server, connect))[0].run("r"))


def test_an_effect_that_records_its_context_is_told_how_not_to(
    store: holdfast.types.Store, go: Loop
) -> None:
    @function_tool
    @effect(name="context pay")
    def pay(ctx: RunContextWrapper[Ctx]) -> str:
        raise AssertionError("it is not called")

    with (
        FakeModelServer([CallTools(("pay", {}, "call_1")), Say("Done.")]) as server,
        pytest.raises(RunFailed, match=r"@effect\(…, unrecorded=\('ctx',\)\)"),
    ):
        go(played(helper(server, pay))[0].run("r"))
