"""Families of runs: whose pot a run spends from."""

from __future__ import annotations

from holdfast._core.rows import Pot, RunRow
from holdfast._store.contract import Store


def pot_of(store: Store, row: RunRow) -> Pot | None:
    """Return the pot that a run spends from: that of its root; if the root has none, its own or
    that of the nearest run above it."""
    if row.root is None:
        return store.pot(row.run_id)
    pot = store.pot(row.root)
    above: RunRow | None = row
    while pot is None and above is not None and above.run_id != row.root:
        pot = store.pot(above.run_id)
        above = None if above.parent is None else store.get(above.parent)
    return pot
