"""One turn of a thread: what a run does with it, from its input to the end, over any number of lives.

The run's id stands in the metadata of its checkpoints, and the journal has the checkpoint at which the
run began. So a run that is taken up knows its own turn, even if the thread has gone on since: what is
done is not invoked again.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any, cast

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.serde.types import RESUME
from langgraph.types import Command, StateSnapshot

import holdfast
from holdfast.errors import UsageError
from holdfast.integrations.langgraph.asking import Question

RUN = "holdfast_run"
"""Where the metadata of a checkpoint name the run."""


@dataclass(frozen=True)
class Look:
    """Read where the thread stands, or stood at a checkpoint."""

    config: RunnableConfig


@dataclass(frozen=True)
class Find:
    """Find the newest checkpoint that a run has made."""

    run_id: str


@dataclass(frozen=True)
class Claim:
    """Have the thread for this run alone, from now on or no longer."""

    taken: bool


@dataclass(frozen=True)
class Begin:
    """Record the checkpoint at which the run begins; the answer is what was recorded first."""

    checkpoint_id: str | None


@dataclass(frozen=True)
class Read:
    """Read a checkpoint, with what its tasks have written."""

    config: RunnableConfig


@dataclass(frozen=True)
class Invoke:
    """Run the graph: with an input, an answer, or None to go on from its checkpoint."""

    given: Any


Script = Generator[Look | Find | Claim | Begin | Read | Invoke | Question, Any, Any]


def turn(run_id: str, config: RunnableConfig, given: Any) -> Script:
    """What is done with a thread until it has nothing left to do; returns its last values."""
    run = holdfast.current_run()
    assert run is not None
    if run.generation > 1:  # Not its first life: its turn may be done.
        done = yield from _done_before(run_id, config)
        if done is not None:
            return done.values
    yield Claim(taken=True)
    state: StateSnapshot = yield Look(config)
    if not _is_of(state, run_id):
        _check_begin(state, config, given)
        began = yield Begin(_checkpoint_id(state))
        if began != _checkpoint_id(state):
            raise _lost(config)
        if not state.interrupts:
            yield Invoke(given)
            state = yield Look(config)
    # Not `next`: that leaves out tasks which have written, though the step after them is to come.
    while state.tasks:
        questions = yield from _questions(state)
        answers = {}
        for question in questions:
            answers[question.interrupt.id] = question.resume_with((yield question))
        yield Invoke(Command(resume=answers) if answers else None)
        state = yield Look(config)
    yield Claim(taken=False)
    return state.values


def _done_before(
    run_id: str, config: RunnableConfig
) -> Generator[Look | Find, Any, StateSnapshot | None]:
    """Where this run has left the thread, if its turn is done; others may have gone on since."""
    newest: StateSnapshot = yield Look(config)
    if _is_of(newest, run_id):
        return None if newest.tasks else newest
    made: CheckpointTuple | None = yield Find(run_id)
    if made is None:
        return None
    state: StateSnapshot = yield Look(made.config)
    if state.tasks:
        raise UsageError(
            f"{_named(newest)} has gone on with thread {config['configurable']['thread_id']!r} "
            f"from where this run had come; what has become of it stands in the thread"
        )
    return state


def _lost(config: RunnableConfig) -> UsageError:
    return UsageError(
        f"thread {config['configurable']['thread_id']!r} has gone on since this run began, and has no "
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


def _check_begin(state: StateSnapshot, config: RunnableConfig, given: Any) -> None:
    """Refuse to begin on a thread that is in the midst of something else."""
    thread_id = config["configurable"]["thread_id"]
    busy = bool(state.tasks)
    if given is None and not busy:
        raise UsageError(f"thread {thread_id!r} has nothing to go on with; give it an input")
    if given is not None and busy:
        raise UsageError(
            f"thread {thread_id!r} is half way through what {_named(state)} began, and would mix it with "
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
