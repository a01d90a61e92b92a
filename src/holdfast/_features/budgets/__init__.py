"""Budgets: what a run and the runs that it starts may spend, reserved before each attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._runtime.feature import Decision, Feature

if TYPE_CHECKING:
    from holdfast._engine.journal.history import History
    from holdfast._engine.journal.rows import Lease, Message, Write
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.execution.execution import Execution

BUDGET_SET = "budget_set"
"""The kind of a message that says so; the account itself is changed already."""


def _begin(execution: Execution, _is_new: bool) -> None:
    from holdfast._features.budgets import runtime

    runtime.begin(execution)


def _take_in(execution: Execution, message: Message) -> None:
    from holdfast._features.budgets import runtime

    runtime.take_in(execution, message)


def _decide(
    _engine: Engine, lease: Lease, _history: History, message: Message, _at_us: int
) -> Write:
    from holdfast._features.budgets import runtime

    return runtime.decided(lease, message)


FEATURE = Feature(
    name="budgets",
    begin=_begin,
    messages={BUDGET_SET: _take_in},
    decisions={BUDGET_SET: Decision(write=_decide)},
)
