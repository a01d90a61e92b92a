"""Streams that are left before their end, and streams that end without an answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import Model, ModelBehaviorError, ModelSettings, ModelTracing, Runner

from holdfast import flow
from holdfast.errors import RunFailed
from holdfast.integrations.openai_agents._hooks import DurableModel
from holdfast.testing import FakeModelServer, Say
from tests.integrations.openai_agents.made import helper, model

TEXT = "One two three four."
REST = (ModelSettings(), [], None, [], ModelTracing.DISABLED)
ASKED = [{"role": "user", "content": "A"}]
NOTHING = {"previous_response_id": None, "conversation_id": None, "prompt": None}


class Stalling(Model):
    """A model whose first call in each life says one piece, and the rest when it is let go."""

    def __init__(self, inner: Model) -> None:
        self.inner = inner
        self.asked: list[str] = []
        self.kept: list[asyncio.Event] = []  # Else tasks that wait for them are collected.
        self.begin()

    def begin(self) -> None:
        self.stalls, self.go_on = True, asyncio.Event()
        self.kept.append(self.go_on)

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        self.asked.append(args[1][0]["content"])
        return await self.inner.get_response(*args, **kwargs)

    async def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        self.asked.append(args[1][0]["content"])
        stalls, self.stalls = self.stalls, False
        async for event in self.inner.stream_response(*args, **kwargs):
            yield event
            if stalls and event.type.endswith("output_text.delta"):
                await self.go_on.wait()


def is_piece(event: Any) -> bool:
    return getattr(getattr(event, "data", None), "type", "").endswith("output_text.delta")


async def read(agent: Any, task: str) -> str:
    result = Runner.run_streamed(agent, task)
    async for _event in result.stream_events():
        pass
    return str(result.final_output)


async def leave(agent: Any, how: str) -> None:
    """Ask for A, and go away at the first piece."""
    stalling = agent.model
    result = Runner.run_streamed(agent, "A")
    events = result.stream_events()
    async for event in events:
        if is_piece(event):
            if how == "cancelled":
                result.cancel()
            elif how == "after_turn":
                result.cancel(mode="after_turn")
                stalling.go_on.set()
            else:
                break
    if how == "closed":  # Who closes it waits for the end.
        stalling.go_on.set()
        await events.aclose()


@pytest.mark.parametrize("then", ["AB", "BA"])
@pytest.mark.parametrize("how", ["cancelled", "after_turn", "closed", "forgotten"])
def test_who_leaves_a_stream_has_made_a_call_of_its_own(store, go, how, then):
    breaks = [True]
    with FakeModelServer([Say(TEXT)]) as server:
        agent = helper(server)
        stalling = agent.model = Stalling(model(server))

        @flow(name="leaving")
        async def play() -> list[str]:
            stalling.begin()
            await leave(agent, how)
            got = [await read(agent, then[0])]
            got.append(str((await Runner.run(agent, then[1])).final_output))
            if breaks and breaks.pop():
                raise OSError("the end")
            return got

        with pytest.raises(RunFailed, match="the end"):
            go(play.run("r"))
        assert stalling.asked == ["A", *then]
        assert go(play.run("r")) == [TEXT, TEXT]
        # Only what has no outcome is asked for again; the others are found where they were.
        again = ["A"] if how in ("cancelled", "forgotten") else []
        assert stalling.asked == ["A", *then, *again]
    told = {step.key: step.status for step in store.get("r").steps}
    assert told["model:support#2"] == told["model:support#3"] == "completed"
    assert store.verify() == []


def test_who_cancels_at_the_end_of_an_answer_has_it_recorded(store, go):
    breaks = [True]
    with FakeModelServer([Say(TEXT)]) as server:
        agent = helper(server)

        @flow(name="last_moment")
        async def play() -> str:
            result = Runner.run_streamed(agent, "A")
            async for event in result.stream_events():
                if getattr(getattr(event, "data", None), "type", "") == "response.completed":
                    result.cancel()
            if breaks and breaks.pop():
                raise OSError("the end")
            return str(result.is_complete)

        with pytest.raises(RunFailed, match="the end"):
            go(play.run("r"))
        assert [(it.key, it.status) for it in store.get("r").steps] == [
            ("model:support", "completed")
        ]
        assert go(play.run("r")) == "True"
        assert server.count == 1


def test_a_time_limit_of_the_sdk_asks_again_in_the_same_step(store, go):
    """It cancels the task that reads, and not the one that asks."""
    with FakeModelServer([Say(TEXT)]) as server:
        stalling = Stalling(model(server))

        @flow(name="limited")
        async def play() -> int:
            durable = DurableModel(stalling, "support", lambda _event: AssertionError())
            first = asyncio.Event()

            async def once() -> int:
                pieces = 0
                asked = durable.stream_response("Help.", ASKED, *REST, **NOTHING)
                async for event in asked:
                    first.set()
                    pieces += event.type.endswith("output_text.delta")
                return pieces

            reader = asyncio.create_task(once())
            await first.wait()
            reader.cancel()
            await asyncio.wait([reader])
            return await once()

        assert go(play.run("r")) > 1
    assert stalling.asked == ["A", "A"]
    assert [(it.key, it.status) for it in store.get("r").steps] == [("model:support", "completed")]


@pytest.mark.parametrize("end", ["incomplete", "failed"])
def test_a_stream_without_an_answer_is_the_same_again_for_who_goes_on(store, go, end):
    seen: list[str] = []
    breaks = [True]
    with FakeModelServer([Say(TEXT, end=end)]) as server:
        agent = helper(server)

        @flow(name="ending_goes_on")
        async def play() -> str:
            result = Runner.run_streamed(agent, "A")
            with pytest.raises(ModelBehaviorError, match=rf"response\.{end}") as told:
                async for event in result.stream_events():
                    if is_piece(event):
                        seen.append(event.data.delta)
            if breaks and breaks.pop():
                raise OSError("the end")
            return str(told.value)

        with pytest.raises(RunFailed, match="the end") as failed:
            go(play.run("r"))
        assert "".join(seen) == TEXT
        seen.clear()
        said = go(play.run("r"))
        assert ("max_output_tokens" if end == "incomplete" else "it gave up") in said
        assert failed.value.type_name == "OSError"
        assert seen == [TEXT]
        assert server.count == 1


@pytest.mark.parametrize("end", ["incomplete", "failed"])
def test_a_run_that_failed_of_it_asks_again(store, go, end):
    ends = [end, "complete"]
    with FakeModelServer([lambda _request: Say(TEXT, end=ends.pop(0))]) as server:
        agent = helper(server)

        @flow(name="asking_again")
        async def play() -> str:
            return await read(agent, "A")

        with pytest.raises(RunFailed, match=rf"response\.{end}"):
            go(play.run("r"))
        assert go(play.run("r")) == TEXT
        assert server.count == 2


@pytest.mark.parametrize("end", ["incomplete", "failed"])
def test_an_answer_in_one_piece_is_told_in_a_run_as_outside_one(store, go, end):
    """Some releases return what there is, and others raise."""
    breaks = [True]
    with FakeModelServer([Say(TEXT, end=end)]) as server:
        agent = helper(server)

        async def told() -> str:
            try:
                return str((await Runner.run(agent, "A")).final_output)
            except ModelBehaviorError as error:
                return str(error)

        @flow(name="told_whole")
        async def play() -> str:
            said = await told()
            if breaks and breaks.pop():
                raise OSError(said)
            return said

        outside = go(told())
        with pytest.raises(RunFailed) as failed:
            go(play.run("r"))
        assert failed.value.message == go(play.run("r")) == outside
        assert server.count == 2


class Tidy(Model):
    """A model that tidies up behind each stream, when it may."""

    def __init__(self, inner: Model) -> None:
        self.inner = inner
        self.may_tidy, self.tidied = asyncio.Event(), asyncio.Event()

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        return await self.inner.get_response(*args, **kwargs)

    async def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        try:
            async for event in self.inner.stream_response(*args, **kwargs):
                yield event
        finally:
            await self.may_tidy.wait()
            self.tidied.set()


@pytest.mark.parametrize("inside", [False, True])
def test_who_leaves_a_stream_does_not_cut_the_clean_up_of_the_provider(store, go, inside):
    with FakeModelServer([Say(TEXT)]) as server:
        agent = helper(server)

        async def work() -> None:
            tidy = agent.model = Tidy(model(server))
            result = Runner.run_streamed(agent, "A")
            async for event in result.stream_events():
                if is_piece(event):
                    result.cancel()
                    tidy.may_tidy.set()
            async with asyncio.timeout(20):
                await tidy.tidied.wait()

        @flow(name="tidying")
        async def play() -> None:
            await work()

        go(play.run("r") if inside else work())
