"""`durable_graph`: what is asked of a LangGraph thread becomes a run, which any worker takes up.

    support = durable_graph("support", graph)
    support.run("ticket-7", {"messages": [{"role": "user", "content": "Where is my lamp?"}]})

The run has the lease, the thread has the checkpoints. When a process dies, a worker takes the run over
and the graph goes on from the last checkpoint; what was recorded of the node that was under way is not
called again, if the agent has `DurableMiddleware`. An interrupt of the graph becomes a question.

The run's id stands in the metadata of its checkpoints. That tells a thread that this run has begun
from one that it has not.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Literal, cast, overload

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import RESUME
from langgraph.graph.state import CompiledStateGraph
from langgraph.types import Command, StateSnapshot

import holdfast
from holdfast.errors import UsageError
from holdfast.integrations.langgraph import plain
from holdfast.integrations.langgraph.asking import Question
from holdfast.integrations.langgraph.middleware import thread

RUN = "holdfast_run"
"""Where the metadata of a checkpoint name the run."""

Graph = CompiledStateGraph[Any, Any, Any, Any]
Saver = BaseCheckpointSaver[Any]
Result = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class Look:
    """Read where the thread stands."""


@dataclass(frozen=True)
class Read:
    """Read a checkpoint, with what its tasks have written."""

    config: RunnableConfig


@dataclass(frozen=True)
class Invoke:
    """Run the graph: with an input, an answer, or None to go on from its checkpoint."""

    given: Any


Script = Generator[Look | Read | Invoke | Question, Any, Any]


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

    def blocking(self, given: Any, thread_id: str | None) -> Any:
        """Drive a thread in a sync flow."""
        graph, (run_id, config) = self.graph(), self.place(thread_id)
        saver = cast("Saver", graph.checkpointer)
        script = _script(run_id, config, given)
        answer: Any = None
        while True:
            try:
                request = script.send(answer)
            except StopIteration as end:
                return self._result(end.value)
            if isinstance(request, Look):
                answer = graph.get_state(config, subgraphs=True)
            elif isinstance(request, Read):
                answer = saver.get_tuple(request.config)
            elif isinstance(request, Invoke):
                with thread():
                    answer = graph.invoke(request.given, config, durability="sync")
            else:
                with holdfast.keyed(request.key):
                    answer = holdfast.ask(request.text, name=request.name)

    async def awaited(self, given: Any, thread_id: str | None) -> Any:
        """Drive a thread in an async flow."""
        graph, (run_id, config) = self.graph(), self.place(thread_id)
        saver = cast("Saver", graph.checkpointer)
        script = _script(run_id, config, given)
        answer: Any = None
        while True:
            try:
                request = script.send(answer)
            except StopIteration as end:
                return self._result(end.value)
            if isinstance(request, Look):
                answer = await graph.aget_state(config, subgraphs=True)
            elif isinstance(request, Read):
                answer = await saver.aget_tuple(request.config)
            elif isinstance(request, Invoke):
                with thread():
                    answer = await graph.ainvoke(request.given, config, durability="sync")
            else:
                with holdfast.keyed(request.key):
                    answer = await holdfast.aio.ask(request.text, name=request.name)


def _script(run_id: str, config: RunnableConfig, given: Any) -> Script:
    """What is done with a thread until it has nothing left to do; returns its last values."""
    state: StateSnapshot = yield Look()
    if not _is_of(state, run_id):
        _check_begin(state, config, given)
        if not state.interrupts:
            yield Invoke(given)
            state = yield Look()
    # Not `next`: that leaves out tasks which have written, though the step after them is to come.
    while state.tasks:
        questions = yield from _questions(state)
        answers = {}
        for question in questions:
            answers[question.interrupt.id] = question.resume_with((yield question))
        yield Invoke(Command(resume=answers) if answers else None)
        state = yield Look()
    return state.values


def _is_of(state: StateSnapshot, run_id: str) -> bool:
    return bool(state.metadata) and cast("Any", state.metadata).get(RUN) == run_id


def _check_begin(state: StateSnapshot, config: RunnableConfig, given: Any) -> None:
    """Refuse to begin on a thread that is in the midst of something else."""
    thread_id = config["configurable"]["thread_id"]
    busy = bool(state.tasks)
    if given is None and not busy:
        raise UsageError(f"thread {thread_id!r} has nothing to go on with; give it an input")
    if given is not None and busy:
        other = cast("Any", state.metadata or {}).get(RUN)
        who = f"run {other!r}" if other else "something that is no run"
        raise UsageError(
            f"thread {thread_id!r} is half way through what {who} began, and would mix it with "
            f"this input; let that end first, or give the input None to go on with it"
        )


def _questions(state: StateSnapshot) -> Generator[Read, CheckpointTuple | None, list[Question]]:
    """The interrupts of a thread that wait for an answer, those of graphs inside it too."""
    found: dict[str, Question] = {}
    snapshots = [state]
    while snapshots:
        snapshot = snapshots.pop()
        saved = yield Read(snapshot.config)
        for task in snapshot.tasks:
            if isinstance(task.state, StateSnapshot):
                snapshots.append(task.state)
            before = _answers_of(saved, task.id)
            for interrupt in task.interrupts:
                known = found.get(interrupt.id)
                if known is None or known.before < before:
                    found[interrupt.id] = Question(interrupt, task.name, before)
    return list(found.values())


def _answers_of(saved: CheckpointTuple | None, task_id: str) -> int:
    """How many answers a task has had."""
    for writer, channel, value in (saved.pending_writes or []) if saved else []:
        if writer == task_id and channel == RESUME:
            return len(value) if isinstance(value, list) else 1
    return 0
