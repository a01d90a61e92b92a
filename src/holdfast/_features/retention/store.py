"""Removes what is past its retention: ended runs, family by family, and old values of memories.

Each run is one transaction, in which its row becomes a tombstone. A parent goes before its children,
so a sweep that was killed half way leaves children without a parent, which the next one removes.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from holdfast._engine.journal.lifecycle import ENDED
from holdfast._engine.journal.rows import Memo, RunRow
from holdfast._features.retention import model as retention
from holdfast._features.retention.model import Asked
from holdfast._stores import lineage
from holdfast._stores.contract import Query, Store
from holdfast._stores.families import children
from holdfast.errors import Corrupt

PAGE = 200
FORKS_LOOK_US = 5_000_000
"""A long sweep looks this often for forks that were made meanwhile."""
STALE_US = 30 * 86_400_000_000
"""How long a value of a memory stays after its end: until then its version goes on counting."""


MEASURES_US = 14 * 86_400_000_000
"""How long measures are kept that nobody said more about."""


class Swept(msgspec.Struct, frozen=True):
    """One run, and what became of it."""

    run_id: str
    flow: str
    status: str
    removed: bool
    why: str = ""
    """Why it was left."""


class Sweeper:
    """Looks for runs that may go, and removes them."""

    def __init__(self, store: Store, asked: Asked, *, dry_run: bool = False) -> None:
        self._store = store
        self._asked = asked
        self._dry_run = dry_run
        self._now_us = store.now_us()
        self._forks: dict[str, list[str]] | None = None
        self._looked_us = 0
        self._gone: set[str] = set()

    def sweep(self) -> Iterator[Swept]:
        """Remove what may go; yields what was removed, and what was meant and left, with why."""
        for row in self._ended():
            parent = None if row.parent is None else self._store.get(row.parent)
            if parent is not None and parent.deleted_us is None:
                continue  # It goes with its parent.
            is_orphan = parent is not None
            if is_orphan or row.status in self._asked.statuses:
                yield from self._family(row, is_orphan=is_orphan)

    def _ended(self) -> Iterator[RunRow]:
        before_us = self._now_us - (self._asked.older_than_us or self._asked.at_least_us)
        query = Query(
            status=sorted(ENDED),
            flow=self._asked.flow,
            updated_before_us=before_us + 1,
            limit=PAGE,
        )
        while page := self._store.list(query):
            yield from page
            query.before_run_no = page[-1].run_no

    def _family(self, top: RunRow, *, is_orphan: bool) -> Iterator[Swept]:
        """Remove a run with all below it. An orphan is what an earlier sweep has left of a family:
        it goes as its parent went."""
        try:
            limit_us = self._limit_us(top)
            if limit_us is None and not is_orphan:
                return  # Nobody has said that it is to go.
            family = [top, *self._below(top)]
            why = self._why_not(top, family, limit_us or 0)
        except Corrupt as damage:
            family, why = [top], f"it is damaged: {damage}"
        if why is not None:
            yield _swept(top, why)
            return
        for row in family:
            if self._dry_run or self._store.forget(row, self._store.now_us()):
                self._gone.add(row.run_id)
                yield _swept(row)
            else:
                yield _swept(row, self._meanwhile(row))
                return

    def _limit_us(self, top: RunRow) -> int | None:
        if self._asked.older_than_us is not None:
            return self._asked.older_than_us
        return retention.kept_for(self._store.entry(top.run_no, 1))

    def _below(self, row: RunRow) -> Iterator[RunRow]:
        for child in children(self._store, row.run_id):
            yield child
            yield from self._below(child)

    # -- what stands against it ----------------------------------------------------------------

    def _why_not(self, top: RunRow, family: list[RunRow], limit_us: int) -> str | None:
        for row in family:
            why = self._reason(row, limit_us)
            if why is not None:
                return why if row is top else f"its child {row.run_id!r}: {why}"
        return None

    def _reason(self, row: RunRow, limit_us: int) -> str | None:
        if row.status not in ENDED:
            return f"it is {row.status}"
        why = retention.too_young(row, limit_us, self._now_us)
        if why is not None:
            return why
        for fork in self._forks_of(row.run_id):
            return f"run {fork!r} was forked from it"
        return self._remembered(row)

    def _meanwhile(self, row: RunRow) -> str:
        """Return why a run was not removed that could have been removed a moment ago."""
        self._forks = None
        for fork in self._forks_of(row.run_id):
            return f"run {fork!r} was forked from it meanwhile"
        return "it has changed meanwhile"

    def _remembered(self, row: RunRow) -> str | None:
        for claimed in retention.claims(self._store.load(row)):
            state = self._store.key(claimed.effect, claimed.key)
            if retention.still_remembered(claimed, state, row, self._now_us):
                return f"its key {claimed.key!r} of {claimed.effect} is younger than its key_ttl"
        return None

    def _forks_of(self, run_id: str) -> list[str]:
        """Return the forks that stand on a run; all of them are looked up, every few seconds."""
        now_us = self._store.now_us()
        if self._forks is None or now_us - self._looked_us > FORKS_LOOK_US:
            self._forks, self._looked_us = lineage.forks(self._store), now_us
        return [fork for fork in self._forks.get(run_id, ()) if fork not in self._gone]


def _swept(row: RunRow, why: str = "") -> Swept:
    return Swept(row.run_id, row.flow, str(row.status), not why, why)


def drop_measures(store: Store, keep_us: int = MEASURES_US) -> int:
    """Remove measures that are older than this; returns how many."""
    before_us, total = store.now_us() - keep_us, 0
    while count := store.drop_measures(before_us):
        total += count
    return total


def end_memos(store: Store, space: str | None = None) -> int:
    """Remove values whose time is over, of one memory or of all; returns how many. It is a removal
    like any other: the version goes on counting. One that is written anew meanwhile stays."""
    total = 0
    while over := store.expired_memos(space):
        gone = [Memo(memo.space, memo.key, None) for memo in over]
        still = [Memo(memo.space, memo.key, None, expected=0) for memo in over]
        if store.put_memos(gone, still):
            total += len(gone)
        else:
            total += sum(store.put_memo(memo, 0) is not None for memo in gone)
    return total


def remove_memo(store: Store, memo: Memo) -> bool:
    """Remove a value at once; returns whether it was there, in the version that is expected if one is.
    What somebody else writes meanwhile is looked at again."""
    while True:
        found = store.memo(memo.space, memo.key)
        if found is None or memo.expected not in (None, found.version):
            return False
        if store.put_memo(memo, found.version) is not None:
            return True


def tidy(store: Store) -> int:
    """Remove what is beside the runs and of no use any more; returns how much."""
    total = end_memos(store)
    before_us = store.now_us() - STALE_US
    while count := store.drop_memos(before_us):
        total += count
    return total
