"""Agents that wait for a person cost a worker nothing."""

from __future__ import annotations

from pydantic_ai import Tool

import holdfast
from holdfast import flow
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.pydantic_ai.support import durable
from tests.integrations.pydantic_ai.test_approvals import DIGEST, LONG
from tests.integrations.unloading import waits_without_a_place


def test_two_calls_that_need_approval() -> None:
    paid: list[str] = []

    def pay(order: str) -> str:
        paid.append(order)
        return "paid"

    turn = CallTools(("pay", {"order": "41"}, "call_a"), ("pay", {"order": "42"}, "call_b"))
    with FakeModelServer([turn, Say("Done.")]) as server:

        @flow(name="unloaded-approvals")
        async def play() -> str:
            agent = durable(server, Tool(pay, requires_approval=True))
            return (await agent.run("Pay")).output

        assert waits_without_a_place(play, questions=2)[0] == "Done."
        assert len(server.requests) == 2
    assert sorted(paid) == ["41", "42"]


def test_two_calls_that_are_too_long_to_be_shown() -> None:
    sent: list[str] = []

    def send(text: str) -> str:
        sent.append(text)
        return "sent"

    turn = CallTools(("send", {"text": LONG}, "call_a"), ("send", {"text": LONG}, "call_b"))
    with FakeModelServer([turn, Say("Done.")]) as server:

        @flow(name="unloaded-long")
        async def play() -> str:
            agent = durable(server, Tool(send, requires_approval=True))
            return (await agent.run("Send")).output

        answer = {"sha256": DIGEST}
        assert waits_without_a_place(play, questions=2, answer=answer)[0] == "Done."
        assert len(server.requests) == 2
    assert sent == [LONG, LONG]


def test_a_tool_that_is_an_effect_with_approval() -> None:
    paid: list[str] = []

    @holdfast.effect(name="unloaded-pay", needs_approval=True)
    def pay(order: str) -> str:
        """Pay an order."""
        paid.append(order)
        return "paid"

    turn = CallTools(("pay", {"order": "42"}, "call_a"))
    with FakeModelServer([turn, Say("Done.")]) as server:

        @flow(name="unloaded-effect")
        async def play() -> str:
            return (await durable(server, Tool(pay, name="pay")).run("Pay")).output

        assert waits_without_a_place(play)[0] == "Done."
        assert len(server.requests) == 2
    assert paid == ["42"]
