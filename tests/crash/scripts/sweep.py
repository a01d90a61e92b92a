"""Removes ended runs, and can die before and after each removal: `before forget 2`."""

from __future__ import annotations

from typing import Any

from holdfast._engine.journal.rows import RunRow
from holdfast._stores.contract import Store
from tests.crash import probe


def dying(store: Store) -> None:
    forget, count = store.forget, [0]

    def counted(row: RunRow, at_us: int) -> Any:
        count[0] += 1
        number = count[0]
        probe.point(f"before forget {number}")
        removed = forget(row, at_us)
        probe.point(f"after forget {number}")
        return removed

    store.forget = counted  # type: ignore[method-assign]


if __name__ == "__main__":
    with probe.open_store() as store:
        dying(store._backend)
        probe.end(lambda: sorted(run.run_id for run in store.prune(older_than=0).removed))
