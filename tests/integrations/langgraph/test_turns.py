"""Runs that share a thread: one at a time, and each knows its own turn when it is taken up late."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any, TypedDict

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph

from holdfast import testing
from holdfast.errors import RunFailed
from holdfast.integrations.langgraph import HoldfastSaver, durable_graph
from holdfast.integrations.langgraph.threads import Claims

PATIENCE_S = 20.0


class State(TypedDict, total=False):
    said: list[str]


@pytest.fixture
def store() -> Iterator[Any]:
    with testing.store() as opened:
        yield opened


def graph_of(node: Any) -> Any:
    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile()


class Turns:
    """A graph that counts its turns, and whose first result does not come through."""

    def __init__(self) -> None:
        self.count = 0
        self.broken = True
        self.graph = graph_of(self.node)

    def node(self, state: State) -> State:
        self.count += 1
        return {"said": [*state.get("said", []), f"turn {self.count}"]}

    def result(self, state: Any) -> Any:
        if self.broken:
            self.broken = False
            raise ConnectionError("no line")
        return state


@pytest.mark.parametrize("own", [True, False])
def test_a_turn_that_is_done_is_not_invoked_again(store: Any, own: bool) -> None:
    turns = Turns()
    saver = HoldfastSaver(store) if own else InMemorySaver()
    chat = durable_graph(f"tu-done-{own}", turns.graph, saver=saver, result=turns.result)
    with pytest.raises(RunFailed, match="no line"):
        chat.run("a", {"said": ["one"]}, thread_id="t")
    assert chat.run("b", {}, thread_id="t") == {"said": ["one", "turn 1", "turn 2"]}
    assert chat.run("a", {"said": ["one"]}, thread_id="t") == {"said": ["one", "turn 1"]}
    assert turns.count == 2


def test_a_turn_that_is_done_is_not_awaited_again(store: Any) -> None:
    turns = Turns()
    chat = durable_graph(
        "tu-adone", turns.graph, saver=HoldfastSaver(store), result=turns.result, awaits=True
    )
    with pytest.raises(RunFailed, match="no line"):
        asyncio.run(chat.run("a", {"said": ["one"]}, thread_id="t"))
    asyncio.run(chat.run("b", {}, thread_id="t"))
    again = asyncio.run(chat.run("a", {"said": ["one"]}, thread_id="t"))
    assert again == {"said": ["one", "turn 1"]}
    assert turns.count == 2


def test_a_turn_whose_checkpoints_are_gone_is_not_invoked_again(store: Any) -> None:
    turns = Turns()
    saver = HoldfastSaver(store)
    chat = durable_graph("tu-pruned", turns.graph, saver=saver, result=turns.result)
    with pytest.raises(RunFailed, match="no line"):
        chat.run("a", {"said": ["one"]}, thread_id="t")
    chat.run("b", {}, thread_id="t")
    saver.prune(["t"])
    with pytest.raises(RunFailed, match="has continued since this run began"):
        chat.run("a", {"said": ["one"]}, thread_id="t")
    assert turns.count == 2


class Slow(HoldfastSaver):
    """A saver whose first checkpoint takes its time."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.writes, self.go_on = threading.Event(), threading.Event()

    def put(self, *args: Any) -> Any:
        self.writes.set()
        assert self.go_on.wait(PATIENCE_S)
        return super().put(*args)


def test_a_thread_has_one_run_at_a_time(store: Any) -> None:
    """The second run comes before the first has written anything into the thread."""
    turns = Turns()
    saver = Slow(store)
    chat = durable_graph("tu-two", turns.graph, saver=saver)
    first = chat.start("a", {"said": ["one"]}, thread_id="t")
    assert saver.writes.wait(PATIENCE_S)
    threading.Timer(PATIENCE_S / 4, saver.go_on.set).start()  # If the second is let in, both end.
    with pytest.raises(RunFailed, match="thread 't' belongs to run 'a', which is running"):
        chat.run("b", {}, thread_id="t")
    saver.go_on.set()
    assert first.result(timeout=PATIENCE_S) == {"said": ["one", "turn 1"]}
    assert chat.run("b", {}, thread_id="t") == {"said": ["one", "turn 1", "turn 2"]}


def test_a_thread_of_a_run_that_failed_is_taken_over(store: Any) -> None:
    broken = [True]

    def node(state: State) -> State:
        if broken:
            broken.pop()
            raise ConnectionError("no line")
        return {"said": [*state["said"], "done"]}

    chat = durable_graph("tu-over", graph_of(node), saver=HoldfastSaver(store))
    with pytest.raises(RunFailed, match="no line"):
        chat.run("a", {"said": ["one"]}, thread_id="t")
    assert chat.run("b", None, thread_id="t") == {"said": ["one", "done"]}
    with pytest.raises(RunFailed, match="run 'b' has continued thread 't'"):
        chat.run("a", {"said": ["one"]}, thread_id="t")


def test_a_claim_of_a_run_that_is_gone_is_taken_over(store: Any) -> None:
    turns = Turns()
    Claims(store).take("t", "gone")
    chat = durable_graph("tu-gone", turns.graph, saver=HoldfastSaver(store))
    assert chat.run("a", {"said": ["one"]}, thread_id="t") == {"said": ["one", "turn 1"]}
    Claims(store).release("t", "other")  # Nothing is left to give back.
    assert store.memory("langgraph-claims").items() == []
