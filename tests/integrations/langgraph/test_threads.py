"""`durable_graph`: threads are runs; interrupts are questions; a worker takes up what another left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any, TypedDict

import pytest
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.types import interrupt

from holdfast import testing
from holdfast.errors import RunFailed, UsageError
from holdfast.integrations.langgraph import DurableMiddleware, HoldfastSaver, durable_graph
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.langgraph.conversing import HELLO, agent_of

PATIENCE_S = 20.0


class State(TypedDict, total=False):
    said: list[str]


@pytest.fixture
def store() -> Iterator[Any]:
    with testing.store() as opened:
        yield opened


def graph_of(*nodes: Any) -> Any:
    builder = StateGraph(State)
    names = [node.__name__ for node in nodes]
    for node in nodes:
        builder.add_node(node.__name__, node)
    for before, after in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(before, after)
    return builder.compile()


def questions(store: Any, count: int = 1) -> list[Any]:
    end = time.monotonic() + PATIENCE_S
    while len(found := store.questions()) < count:
        assert time.monotonic() < end, "nobody was asked"
        store._backend.wait_for_change(0.05)
    return list(found)


def test_turns_of_a_thread_are_runs(store: Any) -> None:
    def reply(state: State) -> State:
        return {"said": [*state.get("said", []), "ok"]}

    graph = graph_of(reply)
    support = durable_graph("th-turns", graph, saver=HoldfastSaver(store))
    assert support.run("t-1", {"said": ["one"]}) == {"said": ["one", "ok"]}
    assert support.run("t-1", {"said": ["one"]}) == {"said": ["one", "ok"]}
    assert support.run("t-1/2", {}, thread_id="t-1") == {"said": ["one", "ok", "ok"]}


def test_the_checkpoints_of_a_run_are_removed_by_its_id(store: Any) -> None:
    def reply(state: State) -> State:
        return {"said": [*state.get("said", []), "ok"]}

    saver = HoldfastSaver(store)
    support = durable_graph("th-removed", graph_of(reply), saver=saver)
    support.run("t-1", {"said": ["one"]}, thread_id="t")
    support.run("t-2", {"said": ["two"]}, thread_id="t")
    saver.delete_for_runs(["t-2"])
    left = list(saver.list({"configurable": {"thread_id": "t"}}))
    assert {it.metadata["holdfast_run"] for it in left} == {"t-1"}
    assert left[0].checkpoint["channel_values"]["said"] == ["one", "ok"]
    saver.delete_for_runs(["t-1"])
    assert list(saver.list({"configurable": {"thread_id": "t"}})) == []


def test_an_interrupt_is_a_question(store: Any) -> None:
    nodes: list[str] = []

    def first(state: State) -> State:
        nodes.append("first")
        return {}

    def asks(state: State) -> State:
        nodes.append("asks")
        return {"said": [interrupt("Name?"), interrupt("Name?")]}

    support = durable_graph("th-asks", graph_of(first, asks), saver=HoldfastSaver(store))
    handle = support.start("t-1", {"said": []})
    (asked,) = questions(store)
    assert asked.text == "Name?"
    store.answer("t-1", asked.name, "Ana", actor="ana")
    end = time.monotonic() + PATIENCE_S
    while (again := questions(store)[0]).name == asked.name:
        assert time.monotonic() < end
    store.answer("t-1", again.name, "Bob", actor="ana")
    assert handle.result(timeout=PATIENCE_S) == {"said": ["Ana", "Bob"]}
    assert nodes == ["first", "asks", "asks", "asks"]


def test_an_answer_is_not_taken_for_the_next_question(store: Any) -> None:
    """The flow is unloaded at each question, and comes back at the second with the first answered."""
    saver = HoldfastSaver(store)

    def asks(state: State) -> State:
        return {"said": [interrupt("Name?"), interrupt("Name?")]}

    support = durable_graph("th-two", graph_of(asks), saver=saver)
    support.submit("t-1", {"said": []})
    names = []
    with store.worker(flows=[support]):
        for answer in ("Ana", "Bob"):
            end = time.monotonic() + PATIENCE_S
            while (asked := questions(store)[0]).name in names:
                assert time.monotonic() < end
            names.append(asked.name)
            store.answer("t-1", asked.name, answer, actor="ana")
        end = time.monotonic() + PATIENCE_S
        while store.get("t-1").status != "completed":
            assert time.monotonic() < end, store.get("t-1")
            store._backend.wait_for_change(0.05)
    assert store.get("t-1").result == {"said": ["Ana", "Bob"]}
    assert len(set(names)) == 2


def test_an_async_graph(store: Any) -> None:
    async def asks(state: State) -> State:
        return {"said": [interrupt({"how": "many"})]}

    support = durable_graph("th-async", graph_of(asks), saver=HoldfastSaver(store), awaits=True)
    handle = support.start("t-1", {"said": []})
    (asked,) = questions(store)
    assert asked.text == '{"how":"many"}'
    store.answer("t-1", asked.name, "three", actor="ana")
    assert handle.result(timeout=PATIENCE_S) == {"said": ["three"]}


def test_what_failed_goes_on_from_its_checkpoint(store: Any) -> None:
    nodes: list[str] = []

    def first(state: State) -> State:
        nodes.append("first")
        return {"said": ["one"]}

    def second(state: State) -> State:
        nodes.append("second")
        if len(nodes) == 2:
            raise ConnectionError("no line")
        return {"said": [*state["said"], "two"]}

    support = durable_graph("th-fails", graph_of(first, second), saver=HoldfastSaver(store))
    with pytest.raises(RunFailed, match="no line"):
        support.run("t-1", {"said": []})
    assert support.run("t-1", {"said": []}) == {"said": ["one", "two"]}
    assert nodes == ["first", "second", "second"]


def test_a_thread_that_is_half_way_is_not_mixed_up(store: Any) -> None:
    def asks(state: State) -> State:
        return {"said": [interrupt("Name?")]}

    graph = graph_of(asks)
    saver = HoldfastSaver(store)
    graph.copy({"checkpointer": saver}).invoke(
        {"said": []}, {"configurable": {"thread_id": "t-1"}}, durability="sync"
    )
    support = durable_graph("th-half", graph, saver=saver)
    with pytest.raises(RunFailed, match="in the middle of a turn"):
        support.run("r-1", {"said": []}, thread_id="t-1")
    handle = support.start("r-2", None, thread_id="t-1")
    (asked,) = questions(store)
    store.answer("r-2", asked.name, "Ana", actor="ana")
    assert handle.result(timeout=PATIENCE_S) == {"said": ["Ana"]}
    with pytest.raises(RunFailed, match="nothing to continue"):
        support.run("r-3", None, thread_id="t-1")


def test_a_graph_needs_a_checkpointer(store: Any) -> None:
    def reply(state: State) -> State:
        return {}

    bare = durable_graph("th-bare", graph_of(reply))
    with pytest.raises(RunFailed, match="no checkpointer"):
        bare.run("t-1", {"said": []})
    own = graph_of(reply).copy({"checkpointer": InMemorySaver()})
    assert durable_graph("th-own", own).run("t-2", {"said": ["x"]}) == {"said": ["x"]}


@pytest.mark.parametrize(("answer", "ended"), [(True, "deleted a"), (False, "rejected")])
def test_a_review_of_tool_calls_is_a_yes_or_no(store: Any, answer: bool, ended: str) -> None:
    def delete(what: str) -> str:
        """Delete something."""
        return f"deleted {what}"

    script = [CallTools(("delete", {"what": "a"}, "c1")), Say("Done.")]
    with FakeModelServer(script) as server:
        reviews = HumanInTheLoopMiddleware(interrupt_on={"delete": True})
        agent = agent_of(server, [delete], middleware=[reviews, DurableMiddleware()])
        support = durable_graph(f"th-review-{answer}", agent, saver=HoldfastSaver(store))
        handle = support.start("t-1", HELLO)
        (asked,) = questions(store)
        assert asked.name.startswith("delete-")
        assert asked.text == 'May this tool be called? delete(what="a")'
        store.answer("t-1", asked.name, answer, actor="ana")
        messages = handle.result(timeout=PATIENCE_S)["messages"]
        assert messages[-1]["content"] == "Done."
        assert ended in messages[2]["content"]


def test_a_refused_review_rejects_the_tool_calls_and_no_other_answer_is_taken(store: Any) -> None:
    def delete(what: str) -> str:
        """Delete something."""
        raise AssertionError(what)

    script = [CallTools(("delete", {"what": "a"}, "c1")), Say("Left as it is.")]
    with FakeModelServer(script) as server:
        reviews = HumanInTheLoopMiddleware(interrupt_on={"delete": True})
        agent = agent_of(server, [delete], middleware=[reviews, DurableMiddleware()])
        support = durable_graph("th-refused", agent, saver=HoldfastSaver(store))
        handle = support.start("t-1", HELLO)
        (asked,) = questions(store)
        for wrong in ("yes", {"approve": True}):
            with pytest.raises(UsageError):
                store.answer("t-1", asked.name, wrong, actor="ana")
        store.reject("t-1", asked.name, reason="It is still needed.", actor="ana")
        messages = handle.result(timeout=PATIENCE_S)["messages"]
        assert "It is still needed." in messages[2]["content"]
        assert messages[-1]["content"] == "Left as it is."


def test_an_interrupt_inside_a_recorded_tool(store: Any) -> None:
    calls: list[str] = []

    def choose(what: str) -> str:
        """Let a person choose."""
        calls.append(what)
        return f"chosen: {interrupt(f'Which {what}?')}"

    script = [CallTools(("choose", {"what": "lamp"}, "c1")), Say("Done.")]
    with FakeModelServer(script) as server:
        support = durable_graph("th-tool", agent_of(server, [choose]), saver=HoldfastSaver(store))
        handle = support.start("t-1", HELLO)
        (asked,) = questions(store)
        assert asked.text == "Which lamp?"
        store.answer("t-1", asked.name, "the red one", actor="ana")
        messages = handle.result(timeout=PATIENCE_S)["messages"]
        assert messages[2]["content"] == "chosen: the red one"
        assert calls == ["lamp", "lamp"]
        assert server.count == 2
        done = [it.key for it in store.get("t-1").steps if it.status == "completed"]
        assert "choose:c1" in done


def test_a_graph_in_a_graph(store: Any) -> None:
    """An agent as a node, called twice, interrupted in between: model calls keep their keys."""
    with FakeModelServer([Say("One."), Say("Two.")]) as server:
        agent = agent_of(server, [], name="helper")

        def pause(state: Any) -> Any:
            return {"messages": [{"role": "user", "content": interrupt("More?")}]}

        builder = StateGraph(MessagesState)
        builder.add_node("one", agent)
        builder.add_node("pause", pause)
        builder.add_node("two", agent)
        for edge in ((START, "one"), ("one", "pause"), ("pause", "two"), ("two", END)):
            builder.add_edge(*edge)
        support = durable_graph("th-nested", builder.compile(), saver=HoldfastSaver(store))
        handle = support.start("t-1", HELLO)
        (asked,) = questions(store)
        store.answer("t-1", asked.name, "Go on.", actor="ana")
        messages = handle.result(timeout=PATIENCE_S)["messages"]
        assert [it["content"] for it in messages] == ["Hello", "One.", "Go on.", "Two."]
        keys = [it.key for it in store.get("t-1").steps if it.name == "model"]
        assert len(keys) == len(set(keys)) == 2
        assert not any("#" in key for key in keys)
        assert [key.partition(".")[0] for key in keys] == ["model:one", "model:two"]


def test_a_loop_of_its_own(store: Any) -> None:
    async def reply(state: State) -> State:
        await asyncio.sleep(0)
        return {"said": ["x"]}

    support = durable_graph("th-loop", graph_of(reply), saver=HoldfastSaver(store), awaits=True)
    assert asyncio.run(support.run("t-1", {"said": []})) == {"said": ["x"]}
