"""The lineage of a fork: the entries and chunks that it borrows from other runs of its store.

A fork shares the numbers of chunks with its origin: chunks below its `base` belong to the origin
(or to the origin's origin), and its own begin there. So borrowed entries are read unchanged, and
new entries can refer to borrowed chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from holdfast._engine.journal import fork_history
from holdfast._engine.journal.entries import Entry
from holdfast._engine.journal.fork_history import Borrowed, Facts, Part
from holdfast._engine.journal.history import History
from holdfast._engine.journal.rows import RunRow
from holdfast._stores import lookups
from holdfast._stores.claim_rules import check_etag
from holdfast._stores.contract import Query, Store
from holdfast.errors import Corrupt, RunDeleted

PAGE = 200
LONG = 32
"""Shorter unneeded ranges are read and dropped, which costs less than a gap."""


class Origin(msgspec.Struct, frozen=True):
    """The origin in the row of a fork."""

    run: str
    base: int


def origin_of(row: RunRow) -> Origin | None:
    """Return the origin of a run, if it is a fork."""
    return None if row.origin is None else msgspec.json.decode(row.origin, type=Origin)


def written_by_forks(run_id: str) -> tuple[str, str]:
    """Return the bounds of the `origin` of all forks of a run (the second is exclusive)."""
    begins = msgspec.json.encode(Origin(run_id, 0)).decode().removesuffix("0}")
    return begins, begins.removesuffix(":") + ";"


def check_origin(
    row: RunRow, find: Callable[[str], RunRow | None], etag: str | None = None
) -> None:
    """Refuse a fork of a run that was deleted, or that has another etag, in the transaction that
    writes the fork. An origin that is not in the store may arrive later, with a copy."""
    origin = origin_of(row)
    other = None if origin is None else find(origin.run)
    if other is not None and other.deleted_us is not None:
        raise RunDeleted(other.run_id)
    if other is not None:
        check_etag(other, etag)


def forks(store: Store) -> dict[str, list[str]]:
    """Return the forks of a store, by origin."""
    found: dict[str, list[str]] = {}
    query = Query(forks=True, limit=PAGE)
    while page := store.list(query):
        for row in page:
            origin = origin_of(row)
            if origin is not None:
                found.setdefault(origin.run, []).append(row.run_id)
        query.before_run_no = page[-1].run_no
    return found


def fold(
    store: Store,
    row: RunRow,
    skips: Sequence[tuple[int, int]] = (),
    *,
    empty: History | None = None,
) -> History:
    """Return the folded history of a run, verified, with its borrowed entries if it is a fork."""
    return read(store, row, skips, empty=empty)[1]


def read(
    store: Store,
    row: RunRow,
    skips: Sequence[tuple[int, int]] = (),
    *,
    empty: History | None = None,
) -> tuple[list[Entry], History]:
    """Return the entries of a run, and their fold with the borrowed entries if it is a fork."""
    entries = store.load(row, skips)
    lent = borrowed(store, row)
    return entries, fork_history.fold(row.run_id, entries, lent, gaps=bool(skips), empty=empty)


def borrowed(store: Store, row: RunRow) -> Borrowed | None:
    """Return the borrowed entries of a fork; None for any other run. Raises RunDeleted if the fork
    was removed since its row was read."""
    if row.origin is None:
        return None
    with lookups.unless_removed(store.by_number, row.run_no):
        entry = store.entry(row.run_no, 2)
        told = fork_history.read(row.run_id, entry)
        assert entry is not None
        loaded = [_entries(store, row, part) for part in told.parts]
    return fork_history.borrow(told, entry.at_us, loaded)


def told_of(store: Store, row: RunRow) -> Facts:
    """Return the facts about a fork's origin in its journal. Raises RunDeleted if the fork was
    removed since its row was read."""
    with lookups.unless_removed(store.by_number, row.run_no):
        return fork_history.read(row.run_id, store.entry(row.run_no, 2))


def _entries(store: Store, row: RunRow, part: Part) -> list[Entry]:
    """Load a part of another run, up to the entry whose digest the fork has recorded."""
    other = _origin_row(store, row, part.run)
    if other.last_seq < part.seq:
        raise Corrupt(
            f"entry {part.seq} of run {part.run!r}",
            run_id=row.run_id,
            why="the fork borrows it, and it is not there",
        )
    until = msgspec.structs.replace(other, last_seq=part.seq, head=bytes.fromhex(part.head))
    entries = store.load(until.sealed(), [skip for skip in part.skips if skip[1] - skip[0] >= LONG])
    if entries and entries[-1].seq == part.seq and entries[-1].digest != until.head:
        raise Corrupt(
            f"entry {part.seq} of run {part.run!r}", run_id=row.run_id, why="it was another one"
        )
    return _without(entries, part.skips)


def _without(entries: list[Entry], skips: Sequence[tuple[int, int]]) -> list[Entry]:
    kept: list[Entry] = []
    at = 0
    for entry in entries:
        while at < len(skips) and skips[at][1] < entry.seq:
            at += 1
        if at == len(skips) or entry.seq < skips[at][0]:
            kept.append(entry)
    return kept


def _origin_row(store: Store, row: RunRow, run_id: str) -> RunRow:
    other = store.get(run_id)
    if other is None or other.deleted_us is not None:
        gone = "is not in this store" if other is None else "was deleted"
        raise Corrupt(
            f"run {run_id!r}, which it was forked from", run_id=row.run_id, why=f"it {gone}"
        )
    return other


def chunks_of(store: Store, row: RunRow) -> Callable[[int], Mapping[int, bytes]]:
    """Return a function that reads the chunks of a run, its own and borrowed ones."""
    if row.origin is None:
        return lambda number: store.chunks(row.run_no, number)
    rows: dict[str, RunRow] = {}

    def fetch(number: int) -> Mapping[int, bytes]:
        at = row
        with lookups.unless_removed(store.by_number, row.run_no):
            while (origin := origin_of(at)) is not None and number < origin.base:
                if origin.run not in rows:
                    rows[origin.run] = _origin_row(store, row, origin.run)
                at = rows[origin.run]
            return store.chunks(at.run_no, number)

    return fetch
