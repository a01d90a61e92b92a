"""Reading memories: what is stored, with what the reader's own run and step wrote over it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast._engine.journal.rows import Memo
from holdfast._engine.scripts.requests import StepCall
from holdfast._features.memory.model import PAGE, Recall, Told, overlaid, recorded_value

if TYPE_CHECKING:
    from holdfast._runtime.execution.execution import Execution
    from holdfast._stores.contract import Store


def recalled(execution: Execution, asked: Recall) -> list[Told]:
    """Return what a flow sees in a memory, in the form that is recorded."""
    return [
        recorded_value(memo)
        for memo in read_memory(execution.engine.backend, asked, execution, None)
    ]


def read_memory(
    kept: Store, asked: Recall, execution: Execution | None = None, call: StepCall | None = None
) -> list[Memo]:
    """Return what is in a memory; inside a run with all that the run wrote before."""
    if execution is not None:
        _settle(execution)
    if asked.key is None:
        # What a step removed is still stored: it may ask for more than it gets.
        limit = None if call is not None and call.attempt.outcome_changes else asked.limit
        found = overlaid(_pages(kept, asked, limit), call, asked.space, asked.prefix)
        return [memo for memo in found if memo.key > asked.after][: asked.limit]
    memo = kept.memo(asked.space, asked.key)
    found = overlaid([] if memo is None else [memo], call, asked.space, asked.key)
    return [memo for memo in found if memo.key == asked.key]


def _pages(kept: Store, asked: Recall, limit: int | None) -> list[Memo]:
    found: list[Memo] = []
    after = asked.after
    while limit is None or len(found) < limit:
        wanted = PAGE if limit is None else min(PAGE, limit - len(found))
        page = kept.memos(asked.space, asked.prefix, after, wanted)
        found += page
        if len(page) < wanted:
            break
        after = page[-1].key
    return found


def _settle(execution: Execution) -> None:
    """See that what the run wrote to memories is committed. A write that is kept back until a
    transaction is through cannot be waited for: it may be the transaction's body that asks."""
    ticket = execution.recorder.read_back
    if ticket is not None and not ticket.parked:
        execution.engine.committer.pass_through(ticket)
        if execution.recorder.read_back is ticket:
            execution.recorder.read_back = None
