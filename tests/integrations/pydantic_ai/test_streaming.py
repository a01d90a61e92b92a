"""Streams: live on the first run; on a resume the recorded part is replayed and the rest streams."""

import asyncio
from collections.abc import AsyncIterable, Iterator
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import PartDeltaEvent, PartStartEvent, TextPartDelta
from pydantic_ai.models.function import FunctionModel

import holdfast
from holdfast import flow
from holdfast.errors import RunFailed
from holdfast.integrations.pydantic_ai import Durable
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.pydantic_ai.support import durable, keys

WORDS = "one two three four five six seven eight"


@pytest.fixture
def store() -> Iterator[holdfast.types.Store]:
    with holdfast.open("memory:") as opened:
        yield opened


class Paced:
    """A model that says the next word only when the last one was seen."""

    def __init__(self) -> None:
        self.calls = 0
        self.seen = asyncio.Event()

    async def stream(self, messages: Any, info: Any) -> Any:
        self.calls += 1
        for word in WORDS.split():
            self.seen.clear()
            yield word + " "
            async with asyncio.timeout(20):
                await self.seen.wait()

    def agent(self) -> Agent[None, str]:
        model = FunctionModel(stream_function=self.stream)
        return Agent(model, name="support", capabilities=[Durable()])


def texts(event: Any) -> str:
    if isinstance(event, PartStartEvent):
        return getattr(event.part, "content", "")
    if isinstance(event, PartDeltaEvent) and isinstance(event.delta, TextPartDelta):
        return event.delta.content_delta
    return ""


async def by_run_stream(paced: Paced, agent: Agent[None, str], seen: list[str]) -> str:
    async with agent.run_stream("Count") as result:
        async for text in result.stream_text(delta=True, debounce_by=None):
            seen.append(text)
            paced.seen.set()
        return await result.get_output()


async def by_handler(paced: Paced, agent: Agent[None, str], seen: list[str]) -> str:
    async def handle(ctx: Any, events: AsyncIterable[Any]) -> None:
        async for event in events:
            if text := texts(event):
                seen.append(text)
                paced.seen.set()

    return (await agent.run("Count", event_stream_handler=handle)).output


async def by_iter(paced: Paced, agent: Agent[None, str], seen: list[str]) -> str:
    async with agent.iter("Count") as run:
        async for node in run:
            if Agent.is_model_request_node(node):
                async with node.stream(run.ctx) as stream:
                    async for event in stream:
                        if text := texts(event):
                            seen.append(text)
                            paced.seen.set()
    assert run.result is not None
    return run.result.output


@pytest.mark.parametrize("way", [by_run_stream, by_handler, by_iter])
def test_words_are_seen_while_they_come_and_replayed_in_one_piece(
    store: holdfast.types.Store, way: Any
) -> None:
    async def work() -> None:
        paced = Paced()
        agent = paced.agent()
        lives: list[list[str]] = []

        @flow(name="streamed")
        async def streamed() -> str:
            lives.append([])
            output = await way(paced, agent, lives[-1])
            if len(lives) == 1:
                raise ConnectionError
            return output

        with pytest.raises(RunFailed):
            await streamed.run("r-1")
        assert (await streamed.run("r-1")).strip() == WORDS
        assert [text.strip() for text in lives[0]] == WORDS.split()
        assert "".join(lives[1]).strip() == WORDS
        assert len(lives[1]) < len(lives[0])
        assert paced.calls == 1

    asyncio.run(work())
    assert keys(store.get("r-1").steps) == ["model:support"]


def test_a_resume_replays_the_recorded_answer_and_streams_the_next(
    store: holdfast.types.Store,
) -> None:
    """The second answer breaks off on its way; the first one is not asked again."""
    look = CallTools(("lookup", {"order": "42"}, "call_a"), say="Let me look. ")
    lookups = []

    def lookup(order: str) -> str:
        lookups.append(order)
        return "a lamp"

    async def work() -> None:
        def cut_once(request: Any) -> Say:
            if server.count == 2:
                server.cut_stream(after_events=4)
            return Say(WORDS)

        with FakeModelServer([look, cut_once]) as server:
            support = durable(server, lookup)
            lives: list[list[str]] = []

            @flow(name="resumed")
            async def agent() -> str:
                lives.append([])

                async def handle(ctx: Any, events: AsyncIterable[Any]) -> None:
                    async for event in events:
                        lives[-1].append(texts(event))

                return (await support.run("What is it?", event_stream_handler=handle)).output

            with pytest.raises(RunFailed):
                await agent.run("r-1")
            cut = "".join(lives[0])
            assert cut.startswith("Let me look. one")
            assert not cut.endswith("eight")
            assert await agent.run("r-1") == WORDS
            assert "".join(lives[1]) == "Let me look. " + WORDS
            assert [request.turn for request in server.requests] == [0, 1, 1]
            assert server.problems == []

    asyncio.run(work())
    assert lookups == ["42"]


def test_a_reader_who_leaves_early_leaves_no_record(store: holdfast.types.Store) -> None:
    async def work() -> None:
        paced = Paced()
        agent = paced.agent()

        @flow(name="left")
        async def left() -> str:
            async with agent.run_stream("Count") as result:
                async for text in result.stream_text(delta=True, debounce_by=None):
                    return text
            raise AssertionError

        assert await left.run("r-1") == "one "

    asyncio.run(work())
    steps = [step for step in store.get("r-1").steps if step.name == "model"]
    assert [step.status for step in steps] == ["cancelled"]
