"""Readers who leave a stream before its end: what they ask next is another call, live and on replay."""

import asyncio
from collections.abc import AsyncIterable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel

import holdfast
from holdfast import flow
from holdfast.errors import RunFailed
from holdfast.integrations.pydantic_ai import Durable
from tests.integrations.pydantic_ai.support import keys

ASKED = "Count"


@pytest.fixture
def store() -> Iterator[holdfast.types.Store]:
    with holdfast.open("memory:") as opened:
        yield opened


class Counting:
    """A model that says how often it was asked, and the rest when it may go on."""

    def __init__(self, *, silent: bool = False) -> None:
        self.calls = 0
        self.asked = asyncio.Event()
        self.go_on = asyncio.Event()
        self._silent = silent

    async def stream(self, messages: Any, info: Any) -> Any:
        self.calls += 1
        first = f"answer {self.calls}"
        self.asked.set()
        if not self._silent:
            yield first
            first = ""
        async with asyncio.timeout(20):
            await self.go_on.wait()
        yield f"{first}, whole"

    def agent(self) -> Agent[None, str]:
        model = FunctionModel(stream_function=self.stream)
        return Agent(model, name="support", capabilities=[Durable()])


async def leave_run_stream(agent: Agent[None, str]) -> None:
    async with agent.run_stream(ASKED) as result:
        async for _ in result.stream_text(delta=True, debounce_by=None):
            break


async def leave_by_an_error(agent: Agent[None, str]) -> None:
    try:
        async with agent.run_stream(ASKED) as result:
            async for _ in result.stream_text(delta=True, debounce_by=None):
                raise ZeroDivisionError
    except ZeroDivisionError:
        pass


async def leave_iter(agent: Agent[None, str]) -> None:
    async with agent.iter(ASKED) as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as stream:
                    async for _ in stream:
                        return


async def leave_events(agent: Agent[None, str]) -> None:
    async with agent.run_stream_events(ASKED) as events:
        async for _ in events:
            break


async def leave_handler(agent: Agent[None, str]) -> None:
    async def handle(ctx: Any, events: AsyncIterable[Any]) -> None:
        async for _ in events:
            raise ZeroDivisionError

    try:
        await agent.run(ASKED, event_stream_handler=handle)
    except ZeroDivisionError:
        pass


async def leave_by_cancelling(agent: Agent[None, str]) -> None:
    async with agent.run_stream(ASKED) as result:
        async for _ in result.stream_text(delta=True, debounce_by=None):
            await result.cancel()
            break


LEAVE = [
    leave_run_stream,
    leave_by_an_error,
    leave_iter,
    leave_events,
    leave_handler,
    leave_by_cancelling,
]


@pytest.mark.parametrize("leave", LEAVE)
def test_what_is_asked_after_leaving_is_found_again_on_replay(
    store: holdfast.types.Store, leave: Any
) -> None:
    lives: list[str] = []

    async def work() -> int:
        counting = Counting()
        agent = counting.agent()

        @flow(name="left_and_asked")
        async def left() -> str:
            counting.go_on.clear()
            await leave(agent)
            counting.go_on.set()
            async with agent.run_stream(ASKED) as result:
                lives.append(await result.get_output())
            if len(lives) == 1:
                raise ConnectionError
            return lives[-1]

        with pytest.raises(RunFailed):
            await left.run("r-1")
        await left.run("r-1")
        return counting.calls

    calls = asyncio.run(work())
    assert lives == ["answer 2, whole"] * 2
    assert calls == 3  # The first answer was not recorded, and is asked for again.
    steps = [(step.key, step.status) for step in store.get("r-1").steps]
    assert ("model:support#2", "completed") in steps


def test_a_stream_that_was_cut_and_is_asked_for_again_is_one_step(
    store: holdfast.types.Store,
) -> None:
    """Somebody who tries again has not left: a replay needs no try that came to nothing."""
    lives: list[str] = []

    async def work() -> int:
        counting = Counting(silent=True)
        agent = counting.agent()

        async def read() -> str:
            async with agent.run_stream(ASKED) as result:
                return await result.get_output()

        @flow(name="cut_and_asked")
        async def cut() -> str:
            reading = asyncio.create_task(read())
            if not lives:
                await counting.asked.wait()
                reading.cancel()
                await asyncio.wait([reading])
                counting.go_on.set()
                reading = asyncio.create_task(read())
            lives.append(await reading)
            if len(lives) == 1:
                raise ConnectionError
            return lives[-1]

        with pytest.raises(RunFailed):
            await cut.run("r-1")
        await cut.run("r-1")
        return counting.calls

    calls = asyncio.run(work())
    assert lives == ["answer 2, whole"] * 2
    assert calls == 2
    assert set(keys(store.get("r-1").steps)) == {"model:support"}


class Tidy(TestModel):
    """A model that tidies up behind each stream, when it may."""

    may_tidy: asyncio.Event
    tidied: asyncio.Event

    @asynccontextmanager
    async def request_stream(self, *args: Any, **kwargs: Any) -> Any:
        async with super().request_stream(*args, **kwargs) as stream:
            try:
                yield stream
            finally:
                await self.may_tidy.wait()
                self.tidied.set()


@pytest.mark.parametrize("inside", [False, True])
def test_a_reader_who_is_cancelled_does_not_cut_the_clean_up_of_the_provider(
    store: holdfast.types.Store, inside: bool
) -> None:
    async def work() -> None:
        tidy = Tidy(custom_output_text="One two three.")
        tidy.may_tidy, tidy.tidied = asyncio.Event(), asyncio.Event()
        agent = Agent(tidy, name="support", capabilities=[Durable()])
        seen = asyncio.Event()

        async def read() -> None:
            async with agent.run_stream_events(ASKED) as events:
                await anext(events)
                seen.set()
                await asyncio.Event().wait()

        reading = asyncio.create_task(read())
        async with asyncio.timeout(20):
            await seen.wait()
            reading.cancel()
            tidy.may_tidy.set()
            await asyncio.wait([reading])
        assert tidy.tidied.is_set()

    @flow(name="tidying")
    async def play() -> None:
        await work()

    asyncio.run(play.run("r-1") if inside else work())
