"""Refuse an action if its run has changed since the actor looked at it.

An action compares the version (etag) of each row that it reads before its first write. It writes an
entry on the row that it read, which fails if the row has changed; a message and a fork bring the version
into their own transaction. So the comparison is part of the write, and no other write comes in between.
A refused action has changed nothing.

A finding that the watchdog notes in the journal of a run does not change the run: the view from before
is still true, so a note does not refuse a decision.
"""

from __future__ import annotations

from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import Status
from holdfast._engine.journal.rows import RunRow, etag_of
from holdfast._stores.claim_rules import check_etag
from holdfast._stores.contract import Store

NOTES_MAX = 20
"""With more notes than these the run is worth another look."""


def checked_etag(store: Store, row: RunRow, expected_version: str | None) -> str | None:
    """Return the etag that a message or a fork must bring into its transaction: that of this row, or
    None if no version is expected. Raise StaleView if the row has another version than expected."""
    if expected_version is None:
        return None
    etag = etag_of(row)
    if not _differs_by_notes(store, row, expected_version, etag):
        check_etag(row, expected_version)
    return etag


def _differs_by_notes(store: Store, row: RunRow, seen: str, now: str) -> bool:
    """Return whether only notes of findings were written since the actor saw the run."""
    seen_state, _, seen_seq = seen.rpartition(".")
    state, _, last_seq = now.rpartition(".")
    if row.status in (Status.QUEUED, Status.RUNNING) or state != seen_state:
        return False
    if not (seen_seq.isdecimal() and last_seq.isdecimal()):
        return False
    since = range(int(seen_seq) + 1, int(last_seq) + 1)
    return 0 < len(since) <= NOTES_MAX and all(_is_note(store, row.run_no, seq) for seq in since)


def _is_note(store: Store, run_no: int, seq: int) -> bool:
    entry = store.entry(run_no, seq)
    return entry is not None and entry.kind is Kind.FINDING_NOTED
