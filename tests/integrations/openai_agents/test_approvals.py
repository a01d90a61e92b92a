"""Approvals of the SDK become questions, and are left alone unless that is asked for."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable
from typing import Any

import pytest
from agents import Runner, function_tool
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner

from holdfast import flow
from holdfast.errors import RunFailed, UsageError
from holdfast.integrations.openai_agents import ask_people, install_durable_runner
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.openai_agents.made import helper, keys, said

BOTH = CallTools(("pay", {"n": 1}, "call_1"), ("pay", {"n": 2}, "call_2"))


def paying(calls: list[int]) -> Any:
    @function_tool(needs_approval=True)
    def pay(n: int) -> str:
        calls.append(n)
        return f"paid {n}"

    return pay


async def answered(store: Any, answers: dict[str, bool]) -> list[str]:
    """Answer the questions as a person would, once all of them are asked."""
    while len(found := await asyncio.to_thread(store.questions)) < len(answers):
        await asyncio.sleep(0.01)
    for question in found:
        call_id = question.name.rpartition(".")[2]
        await asyncio.to_thread(
            lambda it=question, yes=answers[call_id]: store.answer(
                it.run_id, it.name, yes, actor="ana"
            )
        )
    return sorted(it.text for it in found)


def test_a_person_is_asked_and_the_answers_are_obeyed(store, go):
    calls: list[int] = []
    install_durable_runner(approvals="ask")
    with FakeModelServer([BOTH, Say("Done.")]) as server:
        agent = helper(server, paying(calls))

        @flow(name="asking")
        async def play() -> str:
            return str((await Runner.run(agent, "Go on.")).final_output)

        async def both() -> Any:
            return await asyncio.gather(
                play.run("r"), answered(store, {"call_1": True, "call_2": False})
            )

        end, asked = go(both())
        assert end == "Done."
        assert asked == ['pay({"n": 1})?', 'pay({"n": 2})?']
        outputs = said(server.requests[1])
        assert "paid 1" in outputs
        assert len(outputs) == 2
    assert calls == [1]
    assert "pay:call_1" in keys(store, "r")
    assert "pay:call_2" not in keys(store, "r")


@pytest.mark.parametrize("approvals", [None, "ask"])
def test_outside_runs_and_unless_asked_for_the_program_decides(store, go, approvals):
    calls: list[int] = []
    install_durable_runner(approvals=approvals)
    with FakeModelServer([BOTH, Say("Done.")]) as server:
        agent = helper(server, paying(calls))

        async def work() -> str:
            result = await Runner.run(agent, "Go on.")
            assert len(result.interruptions) == 2
            state = result.to_state()
            for item in result.interruptions:
                state.approve(item)
            return str((await Runner.run(agent, state)).final_output)

        @flow(name="deciding")
        async def play() -> str:
            return await work()

        assert go(work() if approvals else play.run("r")) == "Done."
    assert sorted(calls) == [1, 2]
    assert store.questions() == []


async def refused(store: Any, reason: str) -> list[str]:
    """Refuse all questions as a person would: once there are two."""
    while len(found := await asyncio.to_thread(store.questions)) < 2:
        await asyncio.sleep(0.01)
    for it in found:
        await asyncio.to_thread(store.reject, it.run_id, it.name, reason=reason, actor="ana")
    return [it.name for it in found]


@pytest.mark.parametrize("streamed", [False, True])
def test_who_refuses_rejects_the_call_and_the_model_is_told_why(store, go, streamed):
    calls: list[int] = []
    breaks = [True]
    install_durable_runner(approvals="ask")
    with FakeModelServer([BOTH, Say("Done.")]) as server:
        agent = helper(server, paying(calls))

        async def stream(given: Any) -> Any:
            result = Runner.run_streamed(agent, given)
            async for _ in result.stream_events():
                pass
            return result

        @flow(name="refusing")
        async def play() -> str:
            if streamed:
                result = await stream(await ask_people(await stream("Go on.")))
            else:
                result = await Runner.run(agent, "Go on.")
            if breaks and breaks.pop():
                raise OSError("the end")
            return str(result.final_output)

        async def both() -> None:
            with pytest.raises(RunFailed, match="the end"):
                await asyncio.gather(play.run("r"), refused(store, "too much"))

        go(both())
        assert go(play.run("r")) == "Done."
        assert said(server.requests[1]) == ["too much", "too much"]
        assert server.count == 2
    assert calls == []


@pytest.mark.parametrize("call_id", ["k" * 400, "a/b#c[1]:é\0", "k" * 195])
def test_calls_with_ids_of_any_form_are_asked_about(store, go, call_id):
    calls: list[int] = []
    install_durable_runner(approvals="ask")
    made = CallTools(("pay", {"n": 1}, f"{call_id}1"), ("pay", {"n": 2}, f"{call_id}2"))
    with FakeModelServer([made, Say("Done.")]) as server:
        agent = helper(server, paying(calls))

        @flow(name="odd_ids")
        async def play() -> str:
            return str((await Runner.run(agent, "Go on.")).final_output)

        async def both() -> Any:
            return await asyncio.gather(play.run("r"), refused(store, ""))

        end, names = go(both())
        assert end == "Done."
        assert len(set(names)) == 2
    assert calls == []


def test_a_runner_of_the_program_is_not_replaced():
    class Mine(AgentRunner):
        pass

    mine = Mine()
    set_default_agent_runner(mine)
    try:
        install_durable_runner()
        assert get_default_agent_runner() is mine
        with pytest.raises(UsageError, match="your own default runner, Mine"):
            install_durable_runner(approvals="ask")
        assert get_default_agent_runner() is mine
    finally:
        set_default_agent_runner(None)


LONG = "a" * 150_000 + " THE END"
WHOLE = f"send({json.dumps({'text': LONG})})?"
DIGEST = hashlib.sha256(WHOLE.encode()).hexdigest()
SEND = CallTools(("send", {"text": LONG}, "call_1"))


def decided(store: Any, go: Any, decide: Callable[[Any], None]) -> tuple[list[str], list[str]]:
    """Let an agent send, and replay it: what was sent, and what the model was told of the call."""
    sent: list[str] = []
    breaks = [True]
    install_durable_runner(approvals="ask")

    @function_tool(needs_approval=True)
    def send(text: str) -> str:
        sent.append(text)
        return "sent"

    async def person() -> None:
        while not (found := await asyncio.to_thread(store.questions)):
            await asyncio.sleep(0.01)
        await asyncio.to_thread(decide, found[0])

    with FakeModelServer([SEND, Say("Done.")]) as server:
        agent = helper(server, send)

        @flow(name="long_ones")
        async def play() -> str:
            result = await Runner.run(agent, "Go on.")
            if breaks and breaks.pop():
                raise OSError("the end")
            return str(result.final_output)

        async def both() -> None:
            with pytest.raises(RunFailed, match="the end"):
                await asyncio.gather(play.run("r"), person())

        go(both())
        assert go(play.run("r")) == "Done."
        assert store.questions() == []
        assert server.count == 2
        return sent, said(server.requests[1])


def test_a_long_call_is_approved_by_its_digest(store, go):
    def decide(asked: Any) -> None:
        assert len(asked.text) <= 100_000
        assert asked.text.startswith(
            "CUT, too long to be shown here. "
            "All of it: holdfast history r --step shown:approve.call_1 --json. "
            f'To approve all of it, answer {{"sha256":"{DIGEST}"}}; to reject, refuse. '
            'send({"text": "aaa'
        )
        assert asked.text.endswith(" more characters)")
        entries = [it for it in store.history("r") if it.step == "shown:approve.call_1"]
        shown = entries[-1].body["result"]
        assert (shown["sha256"], shown["asked"]) == (DIGEST, WHOLE)
        for wrong in (True, False, {}, {"sha256": "0" * 64}):
            with pytest.raises(UsageError, match="does not fit"):
                store.answer("r", asked.name, wrong, actor="ana")
        store.answer("r", asked.name, {"sha256": DIGEST}, actor="ana")

    assert decided(store, go, decide) == ([LONG], ["sent"])
    assert keys(store, "r") == [
        "model:support",
        "shown:approve.call_1",
        "ask:approve.call_1:send",
        "send:call_1",
        "model:support#2",
    ]


def test_a_long_call_that_is_refused_is_told_to_the_model(store, go):
    def decide(asked: Any) -> None:
        store.reject("r", asked.name, reason="Far too much.", actor="ana")

    assert decided(store, go, decide) == ([], ["Far too much."])
    assert "send:call_1" not in keys(store, "r")
