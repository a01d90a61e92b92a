"""Parents and children, for people: who called whom, and how the children are."""

from __future__ import annotations

import msgspec

from holdfast._core.history import History
from holdfast._core.lifecycle import Status
from holdfast._core.rows import RunRow
from holdfast._store.contract import Query, Store

CHILDREN_SHOWN = 100


class ChildView(msgspec.Struct, frozen=True):
    """A child, in a line."""

    run_id: str
    flow: str
    status: str
    held_reason: str | None = None

    @property
    def told(self) -> str:
        """Its status, with the reason of a held one."""
        return f"{self.status}: {self.held_reason}" if self.held_reason else self.status


def children_of(store: Store, run_id: str) -> list[ChildView]:
    """Return the children of a run, oldest first."""
    rows = store.list(Query(parent=run_id, limit=CHILDREN_SHOWN))
    return [child_view(row) for row in reversed(rows)]


def child_view(row: RunRow) -> ChildView:
    """Return one child."""
    reason = row.held_reason if row.status is Status.HELD else None
    return ChildView(row.run_id, row.flow, str(row.status), reason)


def deadline_us(past: History) -> int | None:
    """Return when a run is cancelled if it has not ended, as its start says."""
    started = past.started
    found = None if started is None else started.data().get("deadline_us")
    return None if found is None else int(msgspec.json.decode(found))
