"""Families of runs: children, and the account from which a run spends."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast._engine.journal.lifecycle import CLAIMABLE, Status
from holdfast._engine.journal.rows import Account, RunRow
from holdfast._stores.contract import Query, Store

PAGE = 500


def children(store: Store, run_id: str, status: list[Status] | None = None) -> Iterator[RunRow]:
    """Yield all child runs of a run, newest first."""
    query = Query(parent=run_id, status=status, limit=PAGE)
    while page := store.list(query):
        yield from page
        query.before_run_no = page[-1].run_no


def open_children(store: Store, run_id: str) -> list[str]:
    """Return the ids of the child runs that have not ended."""
    return [row.run_id for row in children(store, run_id, [*CLAIMABLE, Status.HELD])]


def account_of(store: Store, row: RunRow) -> Account | None:
    """Return the account from which a run spends: that of its root; if the root has none, its own
    or that of its nearest ancestor."""
    if row.root is None:
        return store.account(row.run_id)
    account = store.account(row.root)
    above: RunRow | None = row
    while account is None and above is not None and above.run_id != row.root:
        account = store.account(above.run_id)
        above = None if above.parent is None else store.get(above.parent)
    return account
