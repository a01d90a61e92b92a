"""Ids of agent runs and conversations: the same live and on replay, and different for each run."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic_ai import Agent, RunContext, Tool
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.models.test import TestModel

import holdfast
from holdfast import flow
from holdfast.errors import RunFailed
from holdfast.integrations.pydantic_ai import Durable
from tests.integrations.pydantic_ai.support import twice

ARE_ASKED_FOR = hasattr(AbstractCapability, "get_default_run_id")
"""From 2.61 on; before, Pydantic AI makes them up by itself."""


@pytest.fixture
def store() -> Iterator[holdfast.types.Store]:
    with holdfast.open("memory:") as opened:
        yield opened


class Told:
    """Agents whose tools say in which agent run they are called."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str | None, str | None]] = []

    def note(self, ctx: RunContext[None]) -> str:
        self.seen.append((ctx.agent.name or "", ctx.run_id, ctx.conversation_id))
        return "noted"

    def agent(self, name: str = "support", *tools: Any) -> Agent[None, str]:
        # Not recorded, so that it is called in each life.
        note = Tool(self.note, metadata={"holdfast": False})
        return Agent(TestModel(), name=name, tools=[note, *tools], capabilities=[Durable()])

    async def twice(self, work: Any) -> tuple[list[Any], list[Any]]:
        """Return what was seen live, and on replay."""
        lives: list[list[Any]] = []

        async def once() -> None:
            self.seen = []
            lives.append(self.seen)
            for result in await work():
                ids = {(it.run_id, it.conversation_id) for it in result.all_messages()}
                self.seen.append(sorted(ids))

        await twice(once)
        live, replayed = lives
        return live, replayed


def ids(seen: list[Any]) -> list[str]:
    return [it[1] for it in seen if isinstance(it, tuple)]


def test_they_are_the_same_on_replay(store: holdfast.types.Store) -> None:
    told = Told()
    agent = told.agent()

    async def work() -> list[Any]:
        return [await agent.run("one"), await agent.run("two")]

    live, replayed = asyncio.run(told.twice(work))
    assert len(set(ids(live))) == 2
    assert (live == replayed) is ARE_ASKED_FOR


def test_agents_at_the_same_time_and_inside_tools_have_their_own(
    store: holdfast.types.Store,
) -> None:
    told = Told()
    inner = told.agent("researcher")

    async def research() -> str:
        return (await inner.run("three")).output

    outer = told.agent("support", Tool(research, metadata={"holdfast": False}))

    async def work() -> list[Any]:
        return await holdfast.aio.gather(outer.run("one"), outer.run("two"))

    live, replayed = asyncio.run(told.twice(work))
    assert len(set(ids(live))) == 4
    assert (sorted(map(str, live)) == sorted(map(str, replayed))) is ARE_ASKED_FOR


def test_a_loop_that_goes_on_has_the_ids_of_its_turn(store: holdfast.types.Store) -> None:
    """Turns before the snapshot are not repeated, and their ids are not given again."""
    told = Told()
    agent = told.agent()
    lives = 0

    @flow(name="in_turns")
    async def looping() -> None:
        nonlocal lives
        lives += 1
        async for rounds in holdfast.aio.turns([0], max_turns=5):
            await agent.run("again")
            if lives == 1 and rounds == [1]:
                raise ConnectionError
            rounds[0] += 1
            if rounds == [3]:
                return

    async def work() -> None:
        with pytest.raises(RunFailed):
            await looping.run("r-1")
        await looping.run("r-1")

    asyncio.run(work())
    first, second, replayed, third = ids(told.seen)
    assert len({first, second, third}) == 3
    assert (second == replayed) is ARE_ASKED_FOR
    assert len({first, replayed, third}) == 3


def test_outside_a_run_they_are_made_up_by_pydantic_ai() -> None:
    told = Told()
    agent = told.agent()

    async def work() -> None:
        await agent.run("one")
        await agent.run("two")

    asyncio.run(work())
    assert len(set(ids(told.seen))) == 2


def test_an_id_that_is_given_stays(store: holdfast.types.Store) -> None:
    told = Told()
    agent = told.agent()

    async def work() -> list[Any]:
        return [await agent.run("one", run_id="mine", conversation_id="ours")]

    live, replayed = asyncio.run(told.twice(work))
    assert live == replayed
    assert live[0] == ("support", "mine", "ours")
