"""One turn of a thread: a run's work on it, from its input to the end, over any number of
processes.

The run's ID is in the metadata of its checkpoints, and the journal has the checkpoint at which the
run began. A resumed run therefore knows its own turn, even if the thread has continued since: a
completed turn is not invoked again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, cast, overload

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.checkpoint.serde.types import RESUME
from langgraph.types import Command, StateSnapshot

import holdfast
from holdfast.errors import Rejected, UsageError
from holdfast.integrations._tool_questions import SHOWN
from holdfast.integrations.langgraph import plain_messages
from holdfast.integrations.langgraph.checkpoints import RUN
from holdfast.integrations.langgraph.interrupts import Question
from holdfast.integrations.langgraph.threads import Graph, Saver, Script, Thread, adrive, drive


def turn(thread: Thread, given: Any) -> Script[Any]:
    """Work on the thread until nothing is left to do; returns its last values."""
    run = holdfast.context.current_run()
    assert run is not None
    if run.generation > 1:  # Not its first process: its turn may be complete.
        done = yield from _done_before(thread)
        if done is not None:
            return done.values
    yield from thread.claim()
    state = yield from thread.look()
    if not _is_of(state, thread.run_id):
        _check_begin(state, thread.id, given)
        began = yield from thread.record("begin", "thread", _checkpoint_id(state))
        if began != _checkpoint_id(state):
            raise _lost(thread.id)
        if not state.interrupts:
            yield from thread.invoke(given)
            state = yield from thread.look()
    # Not `next`: that omits tasks which have written, although the step after them is to come.
    while state.tasks:
        questions = yield from _questions(thread, state)
        answers = {}
        for question in questions:
            answers[question.interrupt.id] = yield from _answer(thread, question)
        yield from thread.invoke(Command(resume=answers) if answers else None)
        state = yield from thread.look()
    yield from thread.release()
    return state.values


def _answer(thread: Thread, question: Question) -> Script[Any]:
    """Ask a person; returns the graph's input."""
    if question.is_cut:
        all_of_it = {"sha256": question.digest, "asked": question.whole}
        yield from thread.record(SHOWN, question.key, all_of_it)
    try:
        answer = yield from thread.ask(question)
    except Rejected as refused:
        answer = question.refused_with(refused)
    return question.resume_with(answer)


def _done_before(thread: Thread) -> Script[StateSnapshot | None]:
    """Where this run has left the thread, if its turn is complete; others may have continued
    since."""
    newest = yield from thread.look()
    if _is_of(newest, thread.run_id):
        return None if newest.tasks else newest
    made = yield from thread.find()
    if made is None:
        return None
    state = yield from thread.look(made.config)
    if state.tasks:
        raise UsageError(
            f"{_named(newest)} has continued thread {thread.id!r} "
            f"from the last checkpoint of this run; the thread has the result"
        )
    return state


def _lost(thread_id: str) -> UsageError:
    return UsageError(
        f"thread {thread_id!r} has continued since this run began, and has no "
        f"checkpoint that shows how far this run came; check the thread, and give the rest "
        f"of the work to a new run"
    )


def _checkpoint_id(state: StateSnapshot) -> str | None:
    found: str | None = state.config["configurable"].get("checkpoint_id")
    return found


def _named(state: StateSnapshot) -> str:
    other = cast("Any", state.metadata or {}).get(RUN)
    return f"run {other!r}" if other else "something other than a run"


def _is_of(state: StateSnapshot, run_id: str) -> bool:
    return bool(state.metadata) and cast("Any", state.metadata).get(RUN) == run_id


def _check_begin(state: StateSnapshot, thread_id: str, given: Any) -> None:
    """Refuse to begin on a thread that is in the middle of another turn."""
    busy = bool(state.tasks)
    if given is None and not busy:
        raise UsageError(f"thread {thread_id!r} has nothing to continue; give it an input")
    if given is not None and busy:
        raise UsageError(
            f"thread {thread_id!r} is in the middle of a turn that {_named(state)} began, and would mix it with "
            f"this input; let that turn end first, or give the input None to continue it"
        )


def _questions(thread: Thread, state: StateSnapshot) -> Script[list[Question]]:
    """The interrupts of a thread that wait for an answer, including those of inner graphs."""
    found: dict[str, Question] = {}
    snapshots = [state]
    while snapshots:
        snapshot = snapshots.pop()
        saved = yield from thread.read(snapshot.config)
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


# -- threads as runs ---------------------------------------------------------------------------
# The run has the lease, the thread has the checkpoints. When a process dies, a worker takes the run
# over and the graph continues from the last checkpoint. Recorded calls of the interrupted node are
# not made again, if the agent has `DurableMiddleware`. An interrupt of the graph becomes a
# question.


Result = Callable[[dict[str, Any]], Any]


@overload
def durable_graph(
    name: str,
    graph: Graph,
    *,
    saver: Saver | Callable[[], Saver] | None = None,
    result: Result = plain_messages.state_data,
    config: RunnableConfig | None = None,
    awaits: Literal[False] = False,
    **options: Any,
) -> holdfast.types.Flow[..., Any]: ...
@overload
def durable_graph(
    name: str,
    graph: Graph,
    *,
    saver: Saver | Callable[[], Saver] | None = None,
    result: Result = plain_messages.state_data,
    config: RunnableConfig | None = None,
    awaits: Literal[True],
    **options: Any,
) -> holdfast.types.AsyncFlow[..., Any]: ...
def durable_graph(
    name: str,
    graph: Graph,
    *,
    saver: Saver | Callable[[], Saver] | None = None,
    result: Result = plain_messages.state_data,
    config: RunnableConfig | None = None,
    awaits: bool = False,
    **options: Any,
) -> Any:
    """Return a flow whose runs invoke the graph on a thread: `flow.run(run_id, input,
    thread_id=…)`.

    Without `thread_id` the thread has the run's ID. The input is plain data; None continues a
    thread that something other than a run has left halfway. The run returns `result` of the last
    state, messages as dictionaries by default. `saver=` is a checkpointer, or a function that makes
    it when the first run needs it; otherwise the graph has its own. With `awaits=True` the graph is
    awaited and the flow is async. Other options are those of `@holdfast.flow`.
    """
    threads = _Threads(graph, saver, config)

    def work(input: Any, thread_id: str | None = None) -> Any:  # LangGraph's name.
        return result(drive(turn(threads.thread(thread_id), input)))

    async def awork(input: Any, thread_id: str | None = None) -> Any:
        return result(await adrive(turn(threads.thread(thread_id), input)))

    return holdfast.flow(name=name, **options)(awork if awaits else work)


class _Threads:
    """One graph, and the threads of it that runs work on."""

    def __init__(
        self,
        graph: Graph,
        saver: Saver | Callable[[], Saver] | None,
        config: RunnableConfig | None,
    ) -> None:
        self._graph = graph
        self._saver = saver
        self._config = config or {}
        self._ready: Graph | None = None

    def thread(self, thread_id: str | None) -> Thread:
        """The thread of the current run; its checkpoints name the run."""
        run = holdfast.context.current_run()
        assert run is not None
        config = dict(self._config)
        config["configurable"] = {
            **(self._config.get("configurable") or {}),
            "thread_id": thread_id or run.run_id,
        }
        config["metadata"] = {**(self._config.get("metadata") or {}), RUN: run.run_id}
        return Thread(self._with_saver(), cast("RunnableConfig", config), run.run_id)

    def _with_saver(self) -> Graph:
        """The graph with its checkpointer."""
        if self._ready is None:
            saver = self._saver() if callable(self._saver) else self._saver
            ready = self._graph.copy({"checkpointer": saver}) if saver else self._graph
            if not isinstance(ready.checkpointer, BaseCheckpointSaver):
                raise UsageError(
                    "the graph has no checkpointer, so no thread of it can be resumed: give "
                    'durable_graph(…, saver=HoldfastSaver("sqlite:///runs.db")), or compile it with one'
                )
            self._ready = ready
        return self._ready
