"""Conversations that are kept in the store: outside runs, and inside them without doubles."""

from __future__ import annotations

from typing import Any

import pytest
from agents import Runner, SessionSettings, function_tool

from holdfast import flow
from holdfast.errors import RunFailed
from holdfast.integrations.openai_agents import DurableSession
from holdfast.testing import CallTools, ModelServer, Say
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

    with ModelServer([CallTools(("look", {}, "call_1")), Say("Fine.")]) as server:
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
    with ModelServer([Say("First."), Say("Second.")]) as server:
        agent = helper(server)

        @flow(name="going_on")
        async def play(text: str) -> str:
            result = await Runner.run(agent, text, session=DurableSession("cust-8"))
            return str(result.final_output)

        assert go(play.run("r-1", "one")) == "First."
        assert go(play.run("r-2", "two")) == "Second."
        assert server.problems == []


def test_it_works_in_a_blocking_flow(store):
    with ModelServer([Say("First.")]) as server:

        @flow(name="blocking")
        def play() -> str:
            result = Runner.run_sync(helper(server), "one", session=DurableSession("cust-9"))
            return str(result.final_output)

        assert play.run("r") == "First."
