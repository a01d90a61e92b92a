"""One turn of a thread: what a run does with it, from its input to the end, over any number of lives.

The run's id stands in the metadata of its checkpoints, and the journal has the checkpoint at which the
run began. So a run that is taken up knows its own turn, even if the thread has gone on since: what is
done is not invoked again.
"""

from __future__ import annotations

from typing import Any, cast

from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import RESUME
from langgraph.types import Command, StateSnapshot

import holdfast
from holdfast.errors import Rejected, UsageError
from holdfast.integrations._tool_questions import SHOWN
from holdfast.integrations.langgraph.checkpoints import RUN
from holdfast.integrations.langgraph.interrupts import Question
from holdfast.integrations.langgraph.threads import Script, Thread


def turn(thread: Thread, given: Any) -> Script[Any]:
    """What is done with a thread until it has nothing left to do; returns its last values."""
    run = holdfast.context.current_run()
    assert run is not None
    if run.generation > 1:  # Not its first life: its turn may be done.
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
    # Not `next`: that leaves out tasks which have written, though the step after them is to come.
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
    """Ask a person; returns what the graph gets."""
    if question.is_cut:
        all_of_it = {"sha256": question.digest, "asked": question.whole}
        yield from thread.record(SHOWN, question.key, all_of_it)
    try:
        answer = yield from thread.ask(question)
    except Rejected as refused:
        answer = question.refused_with(refused)
    return question.resume_with(answer)


def _done_before(thread: Thread) -> Script[StateSnapshot | None]:
    """Where this run has left the thread, if its turn is done; others may have gone on since."""
    newest = yield from thread.look()
    if _is_of(newest, thread.run_id):
        return None if newest.tasks else newest
    made = yield from thread.find()
    if made is None:
        return None
    state = yield from thread.look(made.config)
    if state.tasks:
        raise UsageError(
            f"{_named(newest)} has gone on with thread {thread.id!r} "
            f"from where this run had come; what has become of it stands in the thread"
        )
    return state


def _lost(thread_id: str) -> UsageError:
    return UsageError(
        f"thread {thread_id!r} has gone on since this run began, and has no "
        f"checkpoint that tells how far this run had come; look at the thread, and give what is left "
        f"to do to a new run"
    )


def _checkpoint_id(state: StateSnapshot) -> str | None:
    found: str | None = state.config["configurable"].get("checkpoint_id")
    return found


def _named(state: StateSnapshot) -> str:
    other = cast("Any", state.metadata or {}).get(RUN)
    return f"run {other!r}" if other else "something that is no run"


def _is_of(state: StateSnapshot, run_id: str) -> bool:
    return bool(state.metadata) and cast("Any", state.metadata).get(RUN) == run_id


def _check_begin(state: StateSnapshot, thread_id: str, given: Any) -> None:
    """Refuse to begin on a thread that is in the midst of something else."""
    busy = bool(state.tasks)
    if given is None and not busy:
        raise UsageError(f"thread {thread_id!r} has nothing to go on with; give it an input")
    if given is not None and busy:
        raise UsageError(
            f"thread {thread_id!r} is half way through what {_named(state)} began, and would mix it with "
            f"this input; let that end first, or give the input None to go on with it"
        )


def _questions(thread: Thread, state: StateSnapshot) -> Script[list[Question]]:
    """The interrupts of a thread that wait for an answer, those of graphs inside it too."""
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
