"""Deciding on what was seen: an action that is refused if its run has changed since.

`as_seen` gives a store that looks at the run's version each time the action reads its row. The
action's write is conditional on the row that it read, so the comparison is part of the write: nobody
can slip in between. Once the action has written, the run has changed, and that was the action.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from holdfast._core.rows import Message, RunRow, Write
from holdfast._ops.inspect import version_seen
from holdfast._store.contract import Committed, Outcome, Posted, Store
from holdfast.errors import StaleView


def as_seen(store: Store, run_id: str, seen: str | None) -> Store:
    """Return the store for an action on a run that was seen so; None: as it is now."""
    return store if seen is None else cast("Store", _Seen(store, run_id, seen))


class _Seen:
    """A store whose one run must be as it was seen, until this action has written."""

    def __init__(self, store: Store, run_id: str, seen: str) -> None:
        self._store = store
        self._run_id = run_id
        self._seen = seen
        self._acted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def get(self, run_id: str) -> RunRow | None:
        row = self._store.get(run_id)
        if row is None or run_id != self._run_id or self._acted or row.deleted_us is not None:
            return row
        now = version_seen(row)
        if now != self._seen:
            told = row.status if row.held_reason is None else f"{row.status} ({row.held_reason})"
            raise StaleView(
                run_id, f"run {run_id!r} changed since you looked: it is {told} now; look again"
            )
        return row

    def append(self, writes: Sequence[Write]) -> list[Outcome]:
        outcomes = self._store.append(writes)
        self._acted = self._acted or any(isinstance(it, Committed) for it in outcomes)
        return outcomes

    def post(self, run_id: str, message: Message) -> Posted:
        posted = self._store.post(run_id, message)
        self._acted = self._acted or posted is Posted.ACCEPTED
        return posted
