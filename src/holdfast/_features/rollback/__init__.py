"""Rollback: what a run did is undone in reverse order, as compensation in a saga."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._runtime.feature import Decision, Feature

if TYPE_CHECKING:
    from holdfast._engine.journal.history import History
    from holdfast._engine.journal.rows import Lease, Message, Write
    from holdfast._engine.scripts.stops import Unwind
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.execution.execution import Execution

ROLLBACK = "rollback"
"""The kind of a message that asks for one."""


def _unwind_for(execution: Execution, error: BaseException) -> Unwind | None:
    from holdfast._features.rollback import runtime

    return runtime.unwind_for(execution, error)


def _take_in(execution: Execution, message: Message) -> None:
    from holdfast._features.rollback import runtime

    runtime.take_in(execution, message)


def _decide(
    engine: Engine, lease: Lease, history: History, message: Message, at_us: int
) -> Write | None:
    from holdfast._features.rollback import runtime

    return runtime.decided(engine, lease, history, message, at_us)


FEATURE = Feature(
    name="rollback",
    unwind_for=_unwind_for,
    messages={ROLLBACK: _take_in},
    decisions={ROLLBACK: Decision(write=_decide, at_end=True)},
)
