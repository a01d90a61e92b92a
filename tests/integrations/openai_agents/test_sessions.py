"""Conversations that are kept in the store: outside runs, and inside them without doubles."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from agents import Runner, SessionSettings, function_tool

import holdfast
from holdfast import flow
from holdfast.errors import RunFailed
from holdfast.integrations.openai_agents import DurableSession
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.openai_agents.made import helper, keys


def message(number: int) -> Any:
    return {"role": "user", "content": f"message {number}"}


def test_it_adds_limits_pops_and_clears(store, go):
    session = DurableSession("a")
    go(session.add_items([message(1), message(2)]))
    go(session.add_items([message(3)]))
    go(session.add_items([]))
    assert go(session.get_items()) == [message(1), message(2), message(3)]
    assert go(session.get_items(2)) == [message(2), message(3)]
    assert go(session.get_items(9)) == [message(1), message(2), message(3)]
    assert go(session.pop_item()) == message(3)
    go(session.add_items([message(4)]))
    assert go(DurableSession("a").get_items()) == [message(1), message(2), message(4)]
    few = DurableSession("a", session_settings=SessionSettings(limit=1))
    assert go(few.get_items()) == [message(4)]
    assert go(DurableSession("b").get_items()) == []
    go(session.clear_session())
    assert go(session.get_items()) == []
    assert go(session.pop_item()) is None


def test_what_a_run_adds_is_there_once_however_often_it_breaks(store, go):
    session = DurableSession("cust-7")
    go(session.add_items([message(0)]))
    breaks = [False, True, True]

    @function_tool
    def look() -> str:
        return "saw it"

    with FakeModelServer([CallTools(("look", {}, "call_1")), Say("Fine.")]) as server:
        agent = helper(server, look)

        @flow(name="kept")
        async def play() -> str:
            result = await Runner.run(agent, "Go on.", session=session)
            if breaks.pop():
                raise OSError("the end")
            return str(result.final_output)

        for _ in range(2):
            with pytest.raises(RunFailed, match="the end"):
                go(play.run("r"))
        assert go(play.run("r")) == "Fine."
        assert server.count == 2
    items: list[Any] = go(session.get_items())
    assert [it.get("type", it.get("role")) for it in items] == [
        *("user", "user"),
        *("function_call", "function_call_output"),
        "message",
    ]
    assert sum(1 for key in keys(store, "r") if key.startswith("session_get:")) >= 1
    assert sum(1 for key in keys(store, "r") if key.startswith("model:")) == 2


def test_a_later_run_goes_on_with_the_conversation(store, go):
    with FakeModelServer([Say("First."), Say("Second.")]) as server:
        agent = helper(server)

        @flow(name="going_on")
        async def play(text: str) -> str:
            result = await Runner.run(agent, text, session=DurableSession("cust-8"))
            return str(result.final_output)

        assert go(play.run("r-1", "one")) == "First."
        assert go(play.run("r-2", "two")) == "Second."
        assert server.problems == []


def test_it_works_in_a_blocking_flow(store):
    with FakeModelServer([Say("First.")]) as server:

        @flow(name="blocking")
        def play() -> str:
            result = Runner.run_sync(helper(server), "one", session=DurableSession("cust-9"))
            return str(result.final_output)

        assert play.run("r") == "First."


def both(number: int) -> list[Any]:
    return [message(number), message(number + 100)]


async def added_together(session: DurableSession, gather: Any) -> list[Any]:
    await gather(*(session.add_items(both(number)) for number in range(10)))
    return await session.get_items()


IN_ORDER = [item for number in range(10) for item in both(number)]


def test_adds_and_pops_that_overlap_lose_nothing(store, go):
    session = DurableSession("busy")
    assert go(added_together(session, asyncio.gather)) == IN_ORDER
    assert go(session.get_items(3)) == IN_ORDER[-3:]

    async def pops() -> list[Any]:
        return await asyncio.gather(*(session.pop_item() for _ in range(4)))

    assert go(pops()) == IN_ORDER[:-5:-1]
    assert go(session.get_items()) == IN_ORDER[:-4]


@pytest.mark.parametrize("gather", [asyncio.gather, holdfast.aio.gather])
def test_adds_of_one_run_that_overlap_lose_nothing(store, go, gather):
    @flow(name=f"busy.{gather.__module__}")
    async def play() -> list[Any]:
        session = DurableSession("busy")
        found = await added_together(session, gather)
        last = await gather(session.pop_item(), session.pop_item())
        return [found, sorted(last, key=str)]

    found, popped = go(play.run("r"))
    if gather is asyncio.gather:
        assert found == IN_ORDER
    assert [found[at + 1] for at in range(0, 20, 2)] == [
        message(int(it["content"].split()[1]) + 100) for it in found[::2]
    ]
    assert popped == sorted(found[-2:], key=str)
    assert go(DurableSession("busy").get_items()) == found[:-2]


def test_what_several_threads_add_is_kept_and_stays_together(store, go):
    """Each thread has a loop of its own: nothing but the store is between them."""
    session = DurableSession("shared")
    start = threading.Barrier(6)

    @flow(name="shared_adds")
    async def play(number: int) -> None:
        await session.add_items(both(number))

    def work(number: int) -> None:
        start.wait(30)
        for n in range(number * 5, number * 5 + 5):
            asyncio.run(play.run(f"r-{n}", n) if number % 2 else session.add_items(both(n)))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    found = go(session.get_items())
    assert [it["content"] for it in found[1::2]] == [
        f"message {int(it['content'].split()[1]) + 100}" for it in found[::2]
    ]
    assert {it["content"] for it in found[::2]} == {f"message {n}" for n in range(30)}
    assert go(session.get_items(7)) == found[-7:]


@pytest.mark.parametrize("session_id", ["s" * 300, "a\0b", "", " ", "a/b#c[1]:d~", "é ü", "\ud800"])
def test_a_conversation_may_have_any_id(store, go, session_id):
    @flow(name="any_id")
    async def play() -> None:
        await DurableSession(session_id).add_items([message(1)])

    go(play.run("r"))
    assert go(DurableSession(session_id).get_items()) == [message(1)]
    assert go(DurableSession(f"{session_id}x").get_items()) == []


def test_settings_may_be_a_dictionary(store, go):
    session = DurableSession("with a limit", session_settings={"limit": 1})

    async def last() -> Any:
        await session.add_items([{"role": "user", "content": text} for text in ("one", "two")])
        return await session.get_items()

    assert go(last()) == [{"role": "user", "content": "two"}]
