"""Questions: a run asks people, and waits for their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.rows import Change
from holdfast._features.questions.model import FindQuestion, FoundQuestion
from holdfast._runtime.feature import Feature

if TYPE_CHECKING:
    from holdfast._runtime.execution.execution import Execution

ENDS = frozenset({Kind.RUN_COMPLETED, Kind.RUN_CANCELLED, Kind.RUN_ROLLED_BACK})
"""Entries after which nobody waits for an answer. A failed run may be taken up again, and goes on
with its questions."""


def _find(execution: Execution, request: FindQuestion) -> FoundQuestion:
    from holdfast._features.questions.lookup import find_question

    return find_question(execution, request)


def _close(execution: Execution, entries: list[Draft]) -> list[Change]:
    if not any(entry.kind in ENDS for entry in entries):
        return []
    from holdfast._features.questions.lookup import closed_at_end

    return closed_at_end(execution)


FEATURE = Feature(name="questions", derive_changes=_close, performers={FindQuestion: _find})
