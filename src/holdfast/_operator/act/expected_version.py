"""Refuse an action if its run has changed since the actor looked at it.

`require_etag` returns a store in which every write of the action requires that the run still has the
etag that the actor saw. An entry is written on the row that the action read, and reading compares. A
message and a fork bring the etag into their own transaction. So the comparison is part of the write, and
nobody can slip in between; what is refused has changed nothing. Once the action has written, the run has changed,
and that was the action.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from holdfast._engine.journal.rows import Message, RunRow, Write
from holdfast._stores.claim_rules import check_etag
from holdfast._stores.contract import Committed, NewRun, Outcome, Posted, Started, Store
from holdfast._stores.lineage import Origin


def require_etag(store: Store, run_id: str, etag: str | None) -> Store:
    """Return a store that refuses the action if the run has another etag; None accepts any."""
    return store if etag is None else cast("Store", _Guarded(store, run_id, etag))


class _Guarded:
    """A store in which one run must have this etag, until this action has written."""

    def __init__(self, store: Store, run_id: str, etag: str) -> None:
        self._store = store
        self._run_id = run_id
        self._etag = etag
        self._acted = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def _expected(self, run_id: str) -> str | None:
        return self._etag if run_id == self._run_id and not self._acted else None

    def get(self, run_id: str) -> RunRow | None:
        row = self._store.get(run_id)
        if row is not None:
            check_etag(row, self._expected(run_id))
        return row

    def append(self, writes: Sequence[Write]) -> list[Outcome]:
        outcomes = self._store.append(writes)
        self._acted = self._acted or any(isinstance(it, Committed) for it in outcomes)
        return outcomes

    def post(self, run_id: str, message: Message) -> Posted:
        posted = self._store.post(run_id, message, self._expected(run_id))
        self._acted = self._acted or posted is Posted.ACCEPTED
        return posted

    def start(self, new: NewRun, owner: int | None) -> Started:
        if new.origin is not None:
            origin = msgspec.json.decode(new.origin, type=Origin).run
            new = msgspec.structs.replace(new, origin_etag=self._expected(origin))
        started = self._store.start(new, owner)
        self._acted = self._acted or started.created
        return started
