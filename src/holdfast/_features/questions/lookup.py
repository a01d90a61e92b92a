"""Look up a question of a run: its number, and its open row."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from holdfast._engine.journal.changes import ALL, CloseQuestion
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import NO_SKIPS, Change
from holdfast._engine.scripts.inbox_messages import next_number
from holdfast._engine.scripts.requests import Script, StepCall
from holdfast._features.questions.model import FindQuestion, FoundQuestion
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast._runtime.execution.execution import Execution


class Asking:
    """The questions of a run, as one execution knows them."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}
        """Which line of the run asks people by which name."""
        self.any = False
        """Whether it asked people anything, as far as this process has seen."""


def find_question(execution: Execution, request: FindQuestion) -> FoundQuestion:
    """Return what the store knows of a question. Answers are counted there and not in the history,
    of which a resume reads only a part."""
    kept, name = execution.engine.backend, request.name
    execution.slot(Asking).any = True

    def was_taken(message_id: str) -> bool:
        found = kept.message(execution.run_no, message_id)
        return found is not None and found[1] is not None

    number = next_number(was_taken, name)
    found = (it for it in kept.questions(execution.run_id) if it.name == name)
    return FoundQuestion(number, next(found, None))


def one_line(execution: Execution, call: StepCall, name: str, script: Script) -> Script:
    """Perform a script that asks by this name; an answer could not be for two lines of a run."""
    return _one_line(execution, call, name, script)


def _one_line(
    execution: Execution, call: StepCall, name: str, script: Script
) -> Generator[Any, Any, Any]:
    record = execution.history.records.get(call.key)
    if record is not None and record.has_outcome:
        return (yield from script)  # It was answered, and asks nobody any more.
    with execution.lock:
        other = execution.slot(Asking).lines.setdefault(name, call.key)
    if other != call.key:
        raise UsageError(
            f"{call.key}: run {execution.run_id!r} is asking {name!r} already, at {other}; an answer "
            "is found by the name of its question, so give each a name= of its own"
        )
    try:
        return (yield from script)
    finally:
        with execution.lock:
            execution.slot(Asking).lines.pop(name, None)


def closed_at_end(execution: Execution) -> list[Change]:
    """Return which questions the end of a run closes: all, if it may have asked any. What a resume
    has not read may hold one too."""
    if execution.slot(Asking).any or execution.lease.row.skips != NO_SKIPS:
        return [CloseQuestion(ALL)]
    past = execution.history
    records = (*past.records.values(), *past.superseded)
    asked = any(it.begun is not None and it.begun.kind is Kind.QUESTION_ASKED for it in records)
    return [CloseQuestion(ALL)] if asked else []
