"""Agents that wait for a person in a tool cost a worker nothing."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import effect, flow
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.langgraph.conversing import HELLO, agent_of, texts
from tests.integrations.unloading import waits_without_a_place

TURN = CallTools(("look", {"what": "lamp"}, "c1"), ("pay", {"amount": 3}, "c2"))
called: list[Any] = []


def look(what: str) -> str:
    """Look something up."""
    called.append(what)
    return f"a {what}"


@effect(name="unloaded-pay", needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    called.append(amount)
    return f"paid {amount}"


@pytest.mark.parametrize("awaits", [False, True])
def test_a_tool_that_is_an_effect_with_approval(awaits: bool) -> None:
    called.clear()
    with FakeModelServer([TURN, Say("Done.")]) as server:

        @flow(name="unloaded-sync")
        def blocks() -> str:
            return texts(agent_of(server, [look, pay]).invoke(HELLO))[-1]

        @flow(name="unloaded-async")
        async def awaited() -> str:
            return texts(await agent_of(server, [look, pay]).ainvoke(HELLO))[-1]

        assert waits_without_a_place(awaited if awaits else blocks)[0] == "Done."
        assert len(server.requests) == 2
    assert called == ["lamp", 3]
