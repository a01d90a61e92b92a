"""Agents that a graph sends to at once: told apart on a thread, and refused where nothing does."""

from __future__ import annotations

import operator
import threading
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents.middleware import AgentMiddleware
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from holdfast import flow, testing
from holdfast.errors import RunFailed, UsageError
from holdfast.integrations.langgraph import DurableMiddleware, HoldfastSaver, durable_graph
from holdfast.testing import FakeModelServer, Say
from tests.integrations.langgraph.conversing import agent_of, texts

PATIENCE_S = 20.0


class Sent(TypedDict):
    questions: list[str]
    said: Annotated[list[str], operator.add]


class Meanwhile(AgentMiddleware[Any, Any, Any]):
    """Behind the durable middleware: waits for something before the model is called."""

    def __init__(self, wait: Any) -> None:
        super().__init__()
        self.tools = []
        self._wait = wait

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        self._wait(PATIENCE_S)
        return handler(request)


def sending(
    server: FakeModelServer, wait: Any, refused: threading.Event | None = None, then: Any = None
) -> Any:
    """A graph that sends each question to one agent, all at once."""
    agent = agent_of(server, [], middleware=[DurableMiddleware(), Meanwhile(wait)])

    def work(question: str) -> Any:
        try:
            answered = agent.invoke({"messages": [{"role": "user", "content": question}]})
        except UsageError:
            assert refused is not None
            refused.set()
            raise
        if then is not None:
            then()
        return {"said": [": ".join(texts(answered))]}

    builder = StateGraph(Sent)
    builder.add_node("work", work)
    builder.add_conditional_edges(
        START, lambda state: [Send("work", it) for it in state["questions"]], ["work"]
    )
    builder.add_edge("work", END)
    return builder.compile()


def test_other_questions_at_once_are_refused_where_nothing_tells_them_apart() -> None:
    refused = threading.Event()
    with testing.store() as store, FakeModelServer([Say("Yes."), Say("Yes.")]) as server:
        graph = sending(server, refused.wait, refused)

        @flow(name="ao-refused")
        def asks(questions: list[str]) -> Any:
            return graph.invoke({"questions": questions, "said": []})["said"]

        with pytest.raises(RunFailed, match=r"could change places .* durable_graph"):
            asks.run("r-1", ["One?", "Two?"])
        assert server.count == 1
        steps = {it.key: it.status for it in store.get("r-1").steps}
        assert steps["model:work.agent-1"] == "completed"


def test_the_same_question_at_once_is_not() -> None:
    both = threading.Barrier(2)
    with testing.store(), FakeModelServer([Say("Yes."), Say("Yes.")]) as server:
        graph = sending(server, both.wait)

        @flow(name="ao-same")
        def asks(questions: list[str]) -> Any:
            return graph.invoke({"questions": questions, "said": []})["said"]

        assert asks.run("r-1", ["One?", "One?"]) == ["One?: Yes.", "One?: Yes."]


def test_on_a_thread_each_finds_its_own_answer() -> None:
    """Both have their answers when the first life ends, before anything of it is in a checkpoint."""
    both, answered = threading.Barrier(2), threading.Barrier(2)
    lives = ["first"]

    def then() -> None:
        if lives == ["first"]:
            answered.wait(PATIENCE_S)
            raise ConnectionError("no line")

    with testing.store() as store, FakeModelServer([Say("Yes."), Say("No.")]) as server:
        graph = sending(server, both.wait, then=then)
        asks = durable_graph("ao-thread", graph, saver=HoldfastSaver(store))
        given = {"questions": ["One?", "Two?"], "said": []}
        with pytest.raises(RunFailed, match="no line"):
            asks.run("r-1", given)
        lives.append("second")
        said = asks.run("r-1", given)["said"]
        assert [it.partition(":")[0] for it in said] == ["One?", "Two?"]
        assert server.count == 2
        keys = [it.key for it in store.get("r-1").steps if it.name == "model"]
        assert len(set(keys)) == 2
        assert not any("#" in key for key in keys)
