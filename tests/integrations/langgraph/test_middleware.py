"""`DurableMiddleware`: what is recorded, live the same as replayed, and nothing outside a run."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool, tool
from langgraph.types import Command
from pydantic import BaseModel

import holdfast
from holdfast import effect, flow, step, testing
from holdfast.errors import RunFailed, RunHeld, UsageError
from holdfast.integrations.langgraph import DurableMiddleware
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.langgraph.conversing import HELLO, KEY, agent_of, texts

called: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_called() -> None:
    called.clear()


def look(what: str) -> str:
    """Look something up."""
    called.append(what)
    if what == "trouble":
        raise ValueError("nothing to see")
    return f"a {what}"


@step(name="mw-find")
def find(what: str) -> str:
    """Find something."""
    called.append(what)
    return f"found {what}"


@effect(name="mw-pay", on_doubt="retry")
def pay(amount: int) -> str:
    """Pay."""
    called.append(amount)
    return f"paid {amount}"


def interrupted_once(work: Any) -> Any:
    """Run a flow that is interrupted at its end, and again: what it returned, both times."""
    seen: list[Any] = []

    @flow(name=f"mw-{work.__name__}")
    def wrapped() -> Any:
        seen.append(work())
        if len(seen) == 1:
            raise KeyboardInterrupt
        return None

    with pytest.raises(KeyboardInterrupt):
        wrapped.run("r")
    wrapped.run("r")
    return seen


LOOKS = [
    CallTools(("look", {"what": "lamp"}, "c1"), ("mw-find", {"what": "cat"}, "c2")),
    CallTools(("mw-pay", {"amount": 3}, "c3")),
    Say("Done."),
]


def keys(store: Any, run_id: str = "r") -> list[str]:
    return sorted(it.key for it in store.get(run_id).steps)


def test_live_and_replayed_are_the_same() -> None:
    with testing.store() as store, FakeModelServer(LOOKS) as server:

        def work() -> list[Any]:
            tools = [look, tool("mw-find")(find), tool("mw-pay")(pay)]
            return list(agent_of(server, tools).invoke(HELLO)["messages"])

        live, replayed = interrupted_once(work)
        assert [it.content for it in live] == [
            "Hello",
            "",
            "a lamp",
            "found cat",
            "",
            "paid 3",
            "Done.",
        ]
        dumps = [[it.model_dump(exclude={"id"}) for it in each] for each in (live, replayed)]
        assert dumps[0] == dumps[1]
        assert [it.id for it in live if it.type == "ai"] == [
            it.id for it in replayed if it.type == "ai"
        ]
        assert server.count == 3
        assert sorted(map(str, called)) == ["3", "cat", "lamp"]
        assert keys(store) == [
            *("look:c1", "model:agent-1", "model:agent-3", "model:agent-5"),
            *("mw-find:c2", "mw-pay:c3"),
        ]
        usage = store.get("r").totals.usage
        assert usage["input_tokens"] > 0
        assert usage["output_tokens"] > 0


def test_outside_a_run_nothing_is_recorded(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeModelServer([CallTools(("look", {"what": "lamp"}, "c1")), Say("Done.")]) as server:
        assert texts(agent_of(server, [look]).invoke(HELLO))[-1] == "Done."
        result = asyncio.run(agent_of(server, [look]).ainvoke(HELLO))
        assert texts(result)[-1] == "Done."
    assert list(tmp_path.iterdir()) == []


def test_no_secret_reaches_the_store(tmp_path: Path) -> None:
    with (
        holdfast.open(f"sqlite:///{tmp_path}/runs.db", default=False) as store,
        FakeModelServer([Say("Done.")]) as server,
    ):

        @flow(name="mw-secret")
        def asks() -> str:
            return texts(agent_of(server, []).invoke(HELLO))[-1]

        assert asks.with_options(store=store).run("r") == "Done."
        assert KEY in server.requests[0].headers["authorization"]
    for file in tmp_path.iterdir():
        assert KEY.encode() not in file.read_bytes(), file


# --- errors -------------------------------------------------------------------------------------


def test_a_tool_that_raises_is_the_same_live_and_replayed() -> None:
    script = [CallTools(("look", {"what": "trouble"}, "c1"))]
    with testing.store() as store, FakeModelServer(script) as server:

        def work() -> str:
            try:
                agent_of(server, [look]).invoke(HELLO)
            except holdfast.errors.StepFailed as failed:
                return f"{failed.step} {failed.type_name} {failed.message}"
            return "no error"

        live, replayed = interrupted_once(work)
        assert live == replayed == "look:c1 ValueError nothing to see"
        assert called == ["trouble"]
        assert keys(store) == ["look:c1", "model:agent-1"]


def test_bad_arguments_are_told_to_the_model() -> None:
    bad = [
        CallTools(("look", {"which": 1}, "c1"), ("mw-pay", {"amount": "x"}, "c2")),
        Say("Sorry."),
    ]
    with testing.store() as store, FakeModelServer(bad) as server:

        def work() -> list[str]:
            return texts(agent_of(server, [look, tool("mw-pay")(pay)]).invoke(HELLO))

        live, replayed = interrupted_once(work)
        assert live == replayed
        assert "Field required" in live[2]
        assert "valid integer" in live[3]
        assert called == []
        assert keys(store) == ["look:c1", "model:agent-1", "model:agent-3"]


@pytest.mark.parametrize("status", [500, 529])
def test_a_model_in_trouble_is_asked_again_when_the_run_is_taken_up(status: int) -> None:
    with testing.store() as store, FakeModelServer([Say("Done.")]) as server:

        @flow(name="mw-trouble")
        def asks() -> str:
            return texts(agent_of(server, []).invoke(HELLO))[-1]

        server.fail_next(status)
        with pytest.raises(RunFailed, match="the test asked for this failure"):
            asks.run("r")
        assert asks.run("r") == "Done."
        assert server.count == 2
        assert store.get("r").status == "completed"


def test_another_prompt_on_resume_is_held() -> None:
    prompts = iter(["Be kind.", "Be rude."])
    with testing.store() as store, FakeModelServer([Say("Done.")]) as server:

        @flow(name="mw-prompt")
        def asks() -> str:
            said = texts(agent_of(server, [], system_prompt=next(prompts)).invoke(HELLO))[-1]
            if server.count == 1:
                raise KeyboardInterrupt
            return said

        with pytest.raises(KeyboardInterrupt):
            asks.run("r")
        with pytest.raises(RunHeld, match="diverged") as held:
            asks.run("r")
        assert "model:agent-1" in str(held.value)
        assert store.get("r").held_reason == "diverged"
        assert server.count == 1


# --- tools of all kinds -------------------------------------------------------------------------


def test_an_effect_inside_a_plain_tool_is_refused_with_a_way_out() -> None:
    def buy(amount: int) -> str:
        """Buy something."""
        return pay(amount)

    script = [CallTools(("buy", {"amount": 3}, "c1")), Say("Done.")]
    with testing.store(), FakeModelServer(script) as server:

        @flow(name="mw-inside")
        def asks() -> None:
            agent_of(server, [buy]).invoke(HELLO)

        with pytest.raises(RunFailed, match=r"DurableMiddleware\(effects="):
            asks.run("r")
    assert called == []


def test_tools_that_hide_their_function() -> None:
    hidden = StructuredTool.from_function(
        lambda amount: pay(amount), name="mw-pay", description="-"
    )
    remote = StructuredTool.from_function(lambda text: f"sent {text}", name="send", description="-")
    script = [
        CallTools(("mw-pay", {"amount": 3}, "c1"), ("send", {"text": "x"}, "c2")),
        Say("Done."),
    ]
    with testing.store() as store, FakeModelServer(script) as server:

        def work() -> list[str]:
            middleware = [DurableMiddleware(effects=[pay, "send"])]
            return texts(agent_of(server, [hidden, remote], middleware=middleware).invoke(HELLO))

        live, replayed = interrupted_once(work)
        assert live == replayed
        assert called == [3]
        assert keys(store) == ["model:agent-1", "model:agent-3", "mw-pay:c1", "send:c2"]
        kinds = {entry.kind for entry in store.history("r") if entry.step == "send:c2"}
        assert kinds == {"step_started", "step_completed"}


def test_what_is_no_effect_is_refused() -> None:
    with pytest.raises(UsageError, match="effects="):
        DurableMiddleware(effects=[look])


def test_commands_and_structured_answers_survive() -> None:
    class Order(BaseModel):
        number: int
        note: str = ""

    @tool
    def note(text: str) -> Command[Any]:
        """Note something."""
        called.append(text)
        return Command(update={"messages": [ToolMessage(f"noted {text}", tool_call_id="c1")]})

    script = [
        CallTools(("note", {"text": "x"}, "c1")),
        CallTools(("Order", {"number": 42}, "c2")),
    ]
    with testing.store(), FakeModelServer(script) as server:

        def work() -> Any:
            result = agent_of(server, [note], response_format=ToolStrategy(Order)).invoke(HELLO)
            return result["structured_response"], texts(result)

        live, replayed = interrupted_once(work)
        assert live == replayed
        assert live[0] == Order(number=42)
        assert "noted x" in live[1]
        assert called == ["x"]


def test_an_agent_as_a_tool_has_a_line_of_its_own() -> None:
    def turn(request: Any) -> Any:
        asked = request.body["messages"][0]["content"]
        if asked == "Hello":
            return CallTools(("ask", {"who": "a"}, "c1"), ("ask", {"who": "b"}, "c2"))
        return Say(f"I am {asked}.")

    with testing.store() as store, FakeModelServer([turn, Say("Done.")]) as server:

        def ask(who: str) -> str:
            """Ask a colleague."""
            task = {"messages": [{"role": "user", "content": who}]}
            return texts(agent_of(server, []).invoke(task))[-1]

        def work() -> list[str]:
            return texts(
                agent_of(server, [ask], middleware=[DurableMiddleware(agents=["ask"])]).invoke(
                    HELLO
                )
            )

        live, replayed = interrupted_once(work)
        assert live == replayed
        assert live[2:4] == ["I am a.", "I am b."]
        assert server.count == 4
        assert len(keys(store)) == 4
        assert sum("c1" in key for key in keys(store)) == 1
