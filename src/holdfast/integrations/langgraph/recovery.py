"""`durable_graph`: what is asked of a LangGraph thread becomes a run, which any worker takes up.

    support = durable_graph("support", graph)
    support.run("ticket-7", {"messages": [{"role": "user", "content": "Where is my lamp?"}]})

The run has the lease, the thread has the checkpoints. When a process dies, a worker takes the run over
and the graph goes on from the last checkpoint; what was recorded of the node that was under way is not
called again, if the agent has `DurableMiddleware`. An interrupt of the graph becomes a question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Literal, cast, overload

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.state import CompiledStateGraph

import holdfast
from holdfast import keyed, recorded
from holdfast.errors import Refused, UsageError
from holdfast.integrations.langgraph import places, plain
from holdfast.integrations.langgraph.asking import Question
from holdfast.integrations.langgraph.claiming import Claims
from holdfast.integrations.langgraph.saver import HoldfastSaver
from holdfast.integrations.langgraph.turns import RUN, Begin, Claim, Find, Invoke, Look, Read, turn

Graph = CompiledStateGraph[Any, Any, Any, Any]
Saver = BaseCheckpointSaver[Any]
Result = Callable[[dict[str, Any]], Any]


def _begun(checkpoint_id: str | None) -> str | None:
    return checkpoint_id


async def _abegun(checkpoint_id: str | None) -> str | None:
    return checkpoint_id


_begin = recorded(_begun, name="begin", unrecorded=("checkpoint_id",))
_abegin = recorded(_abegun, name="begin", unrecorded=("checkpoint_id",))


@overload
def durable_graph(
    name: str,
    graph: Graph,
    *,
    saver: Saver | Callable[[], Saver] | None = None,
    result: Result = plain.state_data,
    config: RunnableConfig | None = None,
    awaits: Literal[False] = False,
    **options: Any,
) -> holdfast.Flow[..., Any]: ...
@overload
def durable_graph(
    name: str,
    graph: Graph,
    *,
    saver: Saver | Callable[[], Saver] | None = None,
    result: Result = plain.state_data,
    config: RunnableConfig | None = None,
    awaits: Literal[True],
    **options: Any,
) -> holdfast.AsyncFlow[..., Any]: ...
def durable_graph(
    name: str,
    graph: Graph,
    *,
    saver: Saver | Callable[[], Saver] | None = None,
    result: Result = plain.state_data,
    config: RunnableConfig | None = None,
    awaits: bool = False,
    **options: Any,
) -> Any:
    """Return a flow whose runs invoke the graph on a thread: `flow.run(run_id, input, thread_id=…)`.

    Without `thread_id` the thread has the run's id. The input is plain data; None goes on with a
    thread that something other than a run has left half way. The run returns `result` of the last
    state, messages as dictionaries by default. `saver=` is a checkpointer, or a function that makes
    it when the first run needs it; else the graph has its own. With `awaits=True` the graph is
    awaited and the flow is async. Other options are those of `@holdfast.flow`.
    """
    threads = _Threads(graph, saver, result, config)

    def work(input: Any, thread_id: str | None = None) -> Any:  # LangGraph's name.
        return threads.blocking(input, thread_id)

    async def awork(input: Any, thread_id: str | None = None) -> Any:
        return await threads.awaited(input, thread_id)

    return holdfast.flow(name=name, **options)(awork if awaits else work)


class _Threads:
    """One graph, and how its threads are driven."""

    def __init__(
        self,
        graph: Graph,
        saver: Saver | Callable[[], Saver] | None,
        result: Result,
        config: RunnableConfig | None,
    ) -> None:
        self._graph = graph
        self._saver = saver
        self._result = result
        self._config = config or {}
        self._ready: Graph | None = None

    def graph(self) -> Graph:
        """The graph with its checkpointer."""
        if self._ready is None:
            saver = self._saver() if callable(self._saver) else self._saver
            ready = self._graph.copy({"checkpointer": saver}) if saver else self._graph
            if not isinstance(ready.checkpointer, BaseCheckpointSaver):
                raise UsageError(
                    "the graph has no checkpointer, so no thread of it can be taken up: give "
                    'durable_graph(…, saver=HoldfastSaver("sqlite:///runs.db")), or compile it so'
                )
            self._ready = ready
        return self._ready

    def place(self, thread_id: str | None) -> tuple[str, RunnableConfig]:
        """The run that we are in, and the thread that it works on."""
        run = holdfast.current_run()
        assert run is not None
        config = dict(self._config)
        config["configurable"] = {
            **(self._config.get("configurable") or {}),
            "thread_id": thread_id or run.run_id,
        }
        config["metadata"] = {**(self._config.get("metadata") or {}), RUN: run.run_id}
        return run.run_id, cast("RunnableConfig", config)

    def claim(self, run_id: str, config: RunnableConfig, *, taken: bool) -> None:
        """Claim the thread, or give it back. Only a Holdfast store can keep claims."""
        saver = self.graph().checkpointer
        if not isinstance(saver, HoldfastSaver):
            return
        change = Claims(saver.store).take if taken else Claims(saver.store).release
        change(str(config["configurable"]["thread_id"]), run_id)

    def blocking(self, given: Any, thread_id: str | None) -> Any:
        """Drive a thread in a sync flow."""
        graph, (run_id, config) = self.graph(), self.place(thread_id)
        saver = cast("Saver", graph.checkpointer)
        script = turn(run_id, config, given)
        answer: Any = None
        while True:
            try:
                request = script.send(answer)
            except StopIteration as end:
                return self._result(end.value)
            match request:
                case Look():
                    answer = graph.get_state(request.config, subgraphs=True)
                case Find():
                    made = saver.list(_root(config), filter={RUN: request.run_id}, limit=1)
                    answer = next(iter(made), None)
                case Claim():
                    self.claim(run_id, config, taken=request.taken)
                case Begin():
                    with keyed("thread"):
                        answer = _begin(request.checkpoint_id)
                case Read():
                    answer = saver.get_tuple(request.config)
                case Invoke():
                    with places.on_thread():
                        answer = graph.invoke(request.given, config, durability="sync")
                case Question():
                    try:
                        with keyed(request.key):
                            answer = holdfast.ask(
                                request.text, name=request.name, type=request.type
                            )
                    except Refused as refused:
                        answer = request.refused_with(refused)

    async def awaited(self, given: Any, thread_id: str | None) -> Any:
        """Drive a thread in an async flow."""
        graph, (run_id, config) = self.graph(), self.place(thread_id)
        saver = cast("Saver", graph.checkpointer)
        script = turn(run_id, config, given)
        answer: Any = None
        while True:
            try:
                request = script.send(answer)
            except StopIteration as end:
                return self._result(end.value)
            match request:
                case Look():
                    answer = await graph.aget_state(request.config, subgraphs=True)
                case Find():
                    made = saver.alist(_root(config), filter={RUN: request.run_id}, limit=1)
                    answer = await anext(aiter(made), None)
                case Claim():
                    await asyncio.to_thread(self.claim, run_id, config, taken=request.taken)
                case Begin():
                    with keyed("thread"):
                        answer = await _abegin(request.checkpoint_id)
                case Read():
                    answer = await saver.aget_tuple(request.config)
                case Invoke():
                    with places.on_thread():
                        answer = await graph.ainvoke(request.given, config, durability="sync")
                case Question():
                    try:
                        with keyed(request.key):
                            asked = holdfast.aio.ask(
                                request.text, name=request.name, type=request.type
                            )
                            answer = await asked
                    except Refused as refused:
                        answer = request.refused_with(refused)


def _root(config: RunnableConfig) -> RunnableConfig:
    """The thread itself, without the graphs inside it."""
    thread_id = config["configurable"]["thread_id"]
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": ""}}
