"""Agents that wait for a person cost a worker nothing."""

from __future__ import annotations

from agents import Runner, function_tool

import holdfast
from holdfast import flow
from holdfast.integrations.openai_agents import install_durable_runner
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.openai_agents.made import helper
from tests.integrations.openai_agents.test_approvals import BOTH, DIGEST, LONG, paying
from tests.integrations.unloading import waits_without_a_place


def test_two_approvals_of_the_sdk() -> None:
    calls: list[int] = []
    install_durable_runner(approvals="ask")
    with FakeModelServer([BOTH, Say("Done.")]) as server:

        @flow(name="unloaded-approvals")
        async def play() -> str:
            agent = helper(server, paying(calls))
            return str((await Runner.run(agent, "Go on.")).final_output)

        assert waits_without_a_place(play, questions=2)[0] == "Done."
        assert len(server.requests) == 2
    assert sorted(calls) == [1, 2]


def test_two_approvals_that_are_too_long_to_be_shown() -> None:
    sent: list[str] = []

    @function_tool(needs_approval=True)
    def send(text: str) -> str:
        sent.append(text)
        return "sent"

    install_durable_runner(approvals="ask")
    turn = CallTools(("send", {"text": LONG}, "call_1"), ("send", {"text": LONG}, "call_2"))
    with FakeModelServer([turn, Say("Done.")]) as server:

        @flow(name="unloaded-long")
        async def play() -> str:
            return str((await Runner.run(helper(server, send), "Go on.")).final_output)

        answer = {"sha256": DIGEST}
        assert waits_without_a_place(play, questions=2, answer=answer)[0] == "Done."
        assert len(server.requests) == 2
    assert sent == [LONG, LONG]


def test_a_tool_that_is_an_effect_with_approval() -> None:
    calls: list[int] = []

    @holdfast.effect(name="unloaded-pay", needs_approval=True)
    def pay(n: int) -> str:
        calls.append(n)
        return f"paid {n}"

    install_durable_runner()
    turn = CallTools(("pay", {"n": 3}, "call_1"))
    with FakeModelServer([turn, Say("Done.")]) as server:

        @flow(name="unloaded-effect")
        async def play() -> str:
            agent = helper(server, function_tool(pay, name_override="pay"))
            return str((await Runner.run(agent, "Go on.")).final_output)

        assert waits_without_a_place(play)[0] == "Done."
        assert len(server.requests) == 2
    assert calls == [3]
