"""Tools: steps, effects with their own policy, errors, agents that are tools, handoffs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import (
    Agent,
    FunctionTool,
    GuardrailFunctionOutput,
    InputGuardrail,
    RunHooks,
    Runner,
    ToolOutputText,
    function_tool,
)

import holdfast
from holdfast import NOT_DONE, effect, flow, step
from holdfast.errors import RunFailed, RunHeld, UsageError
from holdfast.integrations.openai_agents import install_durable_runner
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.openai_agents.made import Loop, helper, keys, said

calls: list[Any] = []


@pytest.fixture(autouse=True)
def _none_called():
    calls.clear()


def played(agent: Agent[Any], breaks: list[bool] | None = None):
    """Return a flow that runs the agent. It breaks behind it, as often as it is told to."""

    @flow(name="play")
    async def play() -> str:
        result = await Runner.run(agent, "Go on.")
        if breaks and breaks.pop():
            raise OSError("the end")
        return str(result.final_output)

    return play


def twice(go: Loop, agent: Agent[Any]) -> str:
    """Run, break at the end, and take it up: the second time everything is replayed."""
    play = played(agent, [True])
    with pytest.raises(RunFailed, match="the end"):
        go(play.run("r"))
    return go(play.run("r"))


def test_a_tool_that_raises_tells_the_model_the_same_again(store, go):
    def explain(_: Any, error: Exception) -> str:
        return f"sorry: {error}"

    @function_tool(failure_error_function=explain)
    def fragile(n: int) -> str:
        calls.append(n)
        raise ValueError(f"no {n} today")

    with FakeModelServer([CallTools(("fragile", {"n": 7}, "call_1")), Say("Sorry.")]) as server:
        assert twice(go, helper(server, fragile)) == "Sorry."
        assert (server.count, calls) == (2, [7])
        assert said(server.requests[1]) == ["sorry: no 7 today"]
    assert keys(store, "r") == ["model:support", "fragile:call_1", "model:support#2"]


def test_arguments_that_do_not_fit_are_told_the_model(store, go):
    @function_tool
    def add(n: int) -> str:
        calls.append(n)
        return str(n)

    with FakeModelServer([CallTools(("add", {"n": "many"}, "call_1")), Say("Sorry.")]) as server:
        assert twice(go, helper(server, add)) == "Sorry."
        assert calls == []
        assert "n" in said(server.requests[1])[0]
        assert server.count == 2


def test_an_error_that_the_tool_lets_through_fails_the_run_which_can_be_taken_up(store, go):
    broken = [True]

    @function_tool(failure_error_function=None)
    def fragile() -> str:
        if broken:
            raise ValueError("broken")
        return "fine"

    with FakeModelServer([CallTools(("fragile", {}, "call_1")), Say("Good.")]) as server:
        play = played(helper(server, fragile))
        with pytest.raises(RunFailed, match="broken"):
            go(play.run("r"))
        broken.clear()
        assert go(play.run("r")) == "Good."
        assert server.count == 2


def test_a_tool_that_takes_too_long_is_recorded_as_that(store, go):
    @function_tool(timeout=0.05)
    async def slow() -> str:
        calls.append("slow")
        await asyncio.Event().wait()
        return "never"

    with FakeModelServer([CallTools(("slow", {}, "call_1")), Say("Late.")]) as server:
        assert twice(go, helper(server, slow)) == "Late."
        assert calls == ["slow"]
        assert "timed out" in said(server.requests[1])[0]


def test_a_step_and_an_effect_keep_their_own_policy(store, go):
    @step(name="look")
    async def look(n: int) -> str:
        """Look."""
        calls.append("look")
        return f"saw {n}"

    @effect(name="pay", on_doubt="retry")
    async def pay(n: int) -> str:
        """Pay."""
        calls.append(holdfast.idempotency_key())
        return f"paid {n}"

    both = CallTools(("look", {"n": 1}, "call_1"), ("pay", {"n": 2}, "call_2"))
    with FakeModelServer([both, Say("Done.")]) as server:
        agent = helper(server, function_tool(look), function_tool(pay))
        assert twice(go, agent) == "Done."
        assert said(server.requests[1]) == ["saw 1", "paid 2"]
    steps = {it.key: it for it in store.get("r").steps}
    assert steps["pay:call_2"].effect
    assert not steps["look:call_1"].effect
    assert len(calls) == 2


@pytest.mark.parametrize("streamed", [False, True])
def test_an_effect_in_doubt_holds_the_run_and_the_sdk_lets_that_through(store, go, streamed):
    @effect(name="pay_or_not")
    def pay(n: int) -> str:
        """Pay."""
        calls.append(n)
        if len(calls) == 1:
            raise TimeoutError("no answer")
        return "paid"

    with FakeModelServer([CallTools(("pay", {"n": 2}, "call_2")), Say("Done.")]) as server:
        agent = helper(server, function_tool(pay))

        @flow(name="play_either")
        async def play() -> str:
            if not streamed:
                return str((await Runner.run(agent, "Go on.")).final_output)
            result = Runner.run_streamed(agent, "Go on.")
            async for _ in result.stream_events():
                pass
            return str(result.final_output)

        with pytest.raises(RunHeld) as held:
            go(play.run("r"))
        assert held.value.reason == "in_doubt"
        store.settle("r", "pay_or_not:call_2", NOT_DONE, actor="ana")
        assert go(play.run("r")) == "Done."
        assert calls == [2, 2]


def test_an_effect_inside_a_tool_is_named(store, go):
    @effect(name="shop.pay")
    def pay(n: int) -> str:
        calls.append(n)
        return f"paid {n}"

    @function_tool
    def pay_twice(n: int) -> str:
        return pay(2 * n)

    install_durable_runner(effects=["pay_all"])
    with FakeModelServer([CallTools(("pay_twice", {"n": 2}, "call_2")), Say("Done.")]) as server:
        with pytest.raises(RunFailed, match=r"effects=\[pay\]"):
            go(played(helper(server, pay_twice)).run("r-1"))
        assert calls == []
        install_durable_runner(effects=[pay])
        pay_twice.name = "pay"
    with FakeModelServer([CallTools(("pay", {"n": 2}, "call_2")), Say("Done.")]) as server:
        assert go(played(helper(server, pay_twice)).run("r-2")) == "Done."
    assert calls == [4]
    assert "shop.pay:call_2" in keys(store, "r-2")


def test_a_tool_named_as_an_effect_is_one(store, go):
    @function_tool
    def send(text: str) -> str:
        calls.append(text)
        raise TimeoutError("no answer")

    install_durable_runner(effects=["send"])
    with FakeModelServer([CallTools(("send", {"text": "hi"}, "call_1")), Say("Sent.")]) as server:
        play = played(helper(server, send))
        with pytest.raises(RunHeld, match="send:call_1"):
            go(play.run("r"))
        store.settle("r", "send:call_1", holdfast.Done("sent"), actor="ana")
        assert go(play.run("r")) == "Sent."
        assert said(server.requests[-1]) == ["sent"]
    assert calls == ["hi"]


def test_what_is_no_effect_is_refused():
    with pytest.raises(UsageError, match="effects="):
        install_durable_runner(effects=[print])  # type: ignore[list-item]


def test_outputs_that_are_no_plain_data_tell_the_model_what_they_told_it_before(store, go):
    class Odd:
        def __str__(self) -> str:
            return "odd"

    @function_tool
    def odd() -> Any:
        return Odd()

    @function_tool
    def parts() -> Any:
        return [ToolOutputText(text="one"), ToolOutputText(text="two")]

    @function_tool
    def data() -> Any:
        return {"a": [1, 2.5, None]}

    all_three = CallTools(("odd", {}, "c1"), ("parts", {}, "c2"), ("data", {}, "c3"))
    agent_of = lambda server: helper(server, odd, parts, data)
    with FakeModelServer([all_three, Say("Good.")]) as server:
        assert twice(go, agent_of(server)) == "Good."
        inside = said(server.requests[1])
    with FakeModelServer([all_three, Say("Good.")]) as server:
        go(Runner.run(agent_of(server), "Go on."))
        assert said(server.requests[1]) == inside


def test_an_agent_that_is_a_tool_has_lines_of_its_own(store, go):
    @function_tool
    def look(n: int) -> str:
        calls.append(n)
        return f"saw {n}"

    inner_script = [CallTools(("look", {"n": 5}, "call_1")), Say("It is 5.")]
    outer = CallTools(
        ("ask_expert", {"input": "a"}, "call_1"), ("ask_expert", {"input": "b"}, "call_2")
    )
    with FakeModelServer(inner_script) as inside, FakeModelServer([outer, Say("Five.")]) as server:
        expert = helper(inside, look, name="expert")
        tool = expert.as_tool(tool_name="ask_expert", tool_description="Ask.")
        assert twice(go, helper(server, tool)) == "Five."
        assert (server.count, inside.count, calls) == (2, 4, [5, 5])
        assert said(server.requests[1]) == ["It is 5.", "It is 5."]
    assert sorted(keys(store, "r")) == [
        "look:call_1.call_1",
        "look:call_2.call_1",
        "model:call_1.expert",
        "model:call_1.expert#2",
        "model:call_2.expert",
        "model:call_2.expert#2",
        "model:support",
        "model:support#2",
    ]


def test_handoffs_guardrails_and_hooks_still_work(store, go):
    seen: list[str] = []

    class Hooks(RunHooks[Any]):
        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            seen.append(f"{agent.name}.{tool.name}: {result}")

    @function_tool
    def look() -> str:
        return "saw it"

    async def guard(*_: Any) -> GuardrailFunctionOutput:
        seen.append("guarded")
        return GuardrailFunctionOutput(output_info=None, tripwire_triggered=False)

    first = CallTools(("transfer_to_expert", {}, "call_1"))
    with FakeModelServer([first, CallTools(("look", {}, "call_2")), Say("Done.")]) as server:
        expert = helper(server, look, name="expert")
        agent = helper(server, handoffs=[expert], input_guardrails=[InputGuardrail(guard)])

        @flow(name="play_hooked")
        async def play() -> str:
            result = await Runner.run(agent, "Go on.", hooks=Hooks())
            assert result.last_agent is expert
            return str(result.final_output)

        assert go(play.run("r")) == "Done."
    assert sorted(seen) == ["expert.look: saw it", "guarded"]
    assert keys(store, "r") == ["model:support", "model:expert", "look:call_2", "model:expert#2"]


@pytest.mark.parametrize("name", ["t" * 300, "a/b:c#1[2]", "look"])
def test_tools_and_agents_may_have_any_name_and_results_any_depth(store, go, name):
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    calls: list[str] = []
    breaks = [True]

    async def look(context: Any, arguments: str) -> Any:
        calls.append(arguments)
        return deep

    anything = {"type": "object", "properties": {}, "additionalProperties": True}
    tool = FunctionTool(
        name=name,
        description="Look.",
        params_json_schema=anything,
        on_invoke_tool=look,
        strict_json_schema=False,
    )
    with FakeModelServer([CallTools((name, {}, "call_1")), Say("Fine.")]) as server:
        agent = helper(server, tool, name={"look": ""}.get(name, name * 40))

        @flow(name="any_name")
        async def play() -> str:
            result = await Runner.run(agent, "Go on.")
            if breaks and breaks.pop():
                raise OSError("the end")
            return str(result.final_output)

        with pytest.raises(RunFailed, match="the end"):
            go(play.run("r"))
        assert go(play.run("r")) == "Fine."
        assert said(server.requests[1]) == [str(deep)]
        assert server.count == 2
    assert len(calls) == 1
