"""Refuse an action if its run has changed since the actor looked at it.

`require_etag` returns a store in which every write of the action requires that the run still has the
etag that the actor saw. An entry is written on the row that the action read, and reading compares. A
message and a fork bring the etag into their own transaction. So the comparison is part of the write, and
no other write comes in between; a refused action has changed nothing. Once the action has written, its
own change of the run is not compared.

A finding that is noted in the journal of a run is no change of it: the view from before is still true,
so the note does not refuse a decision on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import msgspec

from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import Message, RunRow, Write, etag_of
from holdfast._stores.claim_rules import check_etag
from holdfast._stores.contract import Committed, NewRun, Outcome, Posted, Started, Store
from holdfast._stores.lineage import Origin

NOTES_MAX = 20
"""More notes than these since somebody looked are worth another look."""


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

    def _is_guarded(self, run_id: str) -> bool:
        return run_id == self._run_id and not self._acted

    def _expected(self, run_id: str) -> str | None:
        """Return the etag that a write brings into its own transaction."""
        if not self._is_guarded(run_id):
            return None
        row = self._store.get(run_id)
        if row is not None:
            self._pass_over_notes(row)
        return self._etag

    def get(self, run_id: str) -> RunRow | None:
        row = self._store.get(run_id)
        if row is not None and self._is_guarded(run_id):
            self._pass_over_notes(row)
            check_etag(row, self._etag)
        return row

    def _pass_over_notes(self, row: RunRow) -> None:
        """Go on from the etag of a run that has only got notes of findings since the actor saw it."""
        now = etag_of(row)
        seen_state, _, seen = self._etag.rpartition(".")
        state, _, last = now.rpartition(".")
        if row.status in (Status.QUEUED, Status.RUNNING) or state != seen_state:
            return
        if not (seen.isdecimal() and last.isdecimal()):
            return
        since = range(int(seen) + 1, int(last) + 1)
        if 0 < len(since) <= NOTES_MAX and all(self._is_note(row.run_no, seq) for seq in since):
            self._etag = now

    def _is_note(self, run_no: int, seq: int) -> bool:
        entry = self._store.entry(run_no, seq)
        return entry is not None and entry.kind is Kind.FINDING_NOTED

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
