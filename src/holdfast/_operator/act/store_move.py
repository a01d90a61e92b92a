"""Copy runs from one store to another, with their chains: `holdfast store move`.

A moved run must not go on in both stores, whatever happens on the way. So for each run that has not
ended, in this order:

    1  source   held, as moved to the target; the entry keeps the row as it was before     commit
    2  target   written whole, in the state of before that entry                            commit
    3  target   read again and compared

Killed after 1, the run is held in the source and the next copy finds it there and goes on with 2.
Killed after 2, the next copy finds it in the target and compares. Nobody executes it in the source
after 1, or in the target before 2. A run that has ended keeps its state in 1: its row is marked, since it
could be rolled back.

The way back is a person's decision: `holdfast resume RUN_ID --confirm` in the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.decisions.moved_runs import COPIED_TO, before_copy, may_be_undone_twice
from holdfast._engine.decisions.resume import doubts_of_the_dead, draft, moved_to
from holdfast._engine.journal.changes import CloseInbox
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import FINAL, HeldReason, Status
from holdfast._engine.journal.rows import Lease, RunRow, Write, is_moved
from holdfast._operator.read.run_views import fold
from holdfast._stores import lineage
from holdfast._stores.addresses import without_password
from holdfast._stores.contract import Committed, Limits, Query, Store, WholeRun
from holdfast.errors import Corrupt, RunConflict, RunDeleted, StoreError, StoreLostData, UsageError

PAGE = 500
TRIES = 5
"""How often a run that changes meanwhile is read again before it counts as busy."""


class Fate(StrEnum):
    """The fate of a run in a move."""

    MOVED = "moved"
    THERE = "there already"
    BUSY = "busy"
    CONFLICT = "conflict"
    DAMAGED = "damaged"
    STAYS = "stays"
    MISSING = "missing"
    DELETED = "deleted"


class Moved(msgspec.Struct, frozen=True):
    """One run, and its fate."""

    run_id: str
    fate: Fate
    why: str = ""


def check(source: Store, target: Store) -> None:
    """Refuse a move of a store onto itself, and a store that lost commits."""
    if (source.store_id, source.namespace) == (target.store_id, target.namespace):
        raise UsageError(f"{source.url} and {target.url} are the same store")
    for store in (source, target):
        lost = store.regression()
        if lost is not None:
            raise StoreLostData(
                f"{store.url}: {lost}; look at it, and run `holdfast store accept-data-loss` first"
            )


def run_ids(source: Store) -> list[str]:
    """Return all runs of the source, oldest first."""
    found: list[RunRow] = []
    query = Query(limit=PAGE)
    while page := source.list(query):
        found += page
        query = Query(limit=PAGE, before_run_no=page[-1].run_no)
    return [row.run_id for row in reversed(found)]


def move_runs(
    source: Store, target: Store, wanted: Iterable[str], *, actor: str, dry_run: bool = False
) -> Iterator[Moved]:
    """Move runs one after the other, and yield the fate of each."""
    mover = _Mover(source, target, actor, dry_run=dry_run)
    later: list[str] = []
    for run_id in wanted:
        moved = mover.move(run_id)
        if moved is None:
            later.append(run_id)
        else:
            yield moved
    while later:
        # They wait for a key of another run, which may have come later in the list.
        left, later = later, []
        for run_id in left:
            moved = mover.move(run_id)
            if moved is None:
                later.append(run_id)
            else:
                yield moved
        if len(later) == len(left):
            yield from map(mover.stays, later)
            return


class _Mover:
    """Moves single runs."""

    def __init__(self, source: Store, target: Store, actor: str, *, dry_run: bool) -> None:
        self._source = source
        self._target = target
        self._actor = actor
        self._dry_run = dry_run
        self._moved: set[str] = set()

    def move(self, run_id: str) -> Moved | None:
        """Move a run; None means that another run, which it waits for, has to be moved first."""
        try:
            moved = self._move(run_id)
        except RunConflict as conflict:
            return Moved(run_id, Fate.CONFLICT, str(conflict))
        except Corrupt as damage:
            return Moved(run_id, Fate.DAMAGED, str(damage))
        except RunDeleted as gone:
            return self._deleted(run_id) or Moved(run_id, Fate.CONFLICT, f"in the target, {gone}")
        if moved is not None and moved.fate in (Fate.MOVED, Fate.THERE):
            self._moved.add(run_id)
        return moved

    def _move(self, run_id: str) -> Moved | None:
        for _ in range(TRIES):
            row = self._source.get(run_id)
            if row is None:
                return Moved(run_id, Fate.MISSING, f"{self._source.url} has no such run")
            if row.deleted_us is not None:
                raise RunDeleted(run_id)
            if self._lacks_origin(row):
                return None
            before = self._before(row)
            if before is not None:
                if not self._marked(row):
                    continue
                return self._write_marked(before)
            stays = self._why_not(row)
            if stays is not None:
                return stays
            if self._must_wait(row):
                return None
            if self._dry_run:
                return Moved(run_id, Fate.MOVED)
            held = self._hold(row)
            if held is not None:
                return self._write(held)
        return Moved(run_id, Fate.BUSY, "it changes all the time")

    def _before(self, row: RunRow) -> RunRow | None:
        """Return the row to be written, if the run can be written now: it is over, or an earlier
        copy to this target has held it."""
        if row.status in FINAL:
            return before_copy(row)
        if not is_moved(row):
            return None
        gone = moved_to(fold(self._source, row))
        if gone is None:
            return None
        if (gone["store_id"], gone["namespace"]) != (self._target.store_id, self._target.namespace):
            return None
        return msgspec.convert(gone["row"], RunRow).check()

    def _why_not(self, row: RunRow) -> Moved | None:
        """Explain why a run that is not over cannot be moved as it stands."""
        run_id, source = row.run_id, self._source
        gone = moved_to(fold(source, row)) if row.status is Status.HELD else None
        if gone is not None:
            return Moved(
                run_id, Fate.STAYS, f"it was moved to {gone['url']}, {gone['namespace']} before"
            )
        if self._target.get(run_id) is not None:
            return Moved(
                run_id,
                Fate.CONFLICT,
                "the target has a run with this id, and this one was not held for it",
            )
        if row.run_no <= source.accepted_through():
            return Moved(
                run_id,
                Fate.STAYS,
                "after it was started, its store was restored from a backup, or a loss of commits was "
                "accepted in it, so its effects go through their on_doubt there; let it end there",
            )
        if row.owner is not None and not source.owner_is_dead(row.owner):
            return Moved(run_id, Fate.BUSY, f"{source.owner_name(row.owner)} has it")
        for state in source.whole(row).keys:
            other = self._target.key(state.effect, state.key)
            if other is not None:
                why = f"key {state.key!r} of {state.effect} belongs to run {other.run_id!r} there"
                return Moved(run_id, Fate.CONFLICT, why)
        return None

    def _must_wait(self, row: RunRow) -> bool:
        """Return whether the run waits for a key that the target does not know yet."""
        if not (row.waiting_on or "").startswith("key:"):
            return False
        _, effect, key = str(row.waiting_on).split(":", 2)
        has = self._source.key(effect, key)
        if has is None or has.run_id == row.run_id or has.run_id in self._moved:
            return False
        return self._target.key(effect, key) is None

    def _lacks_origin(self, row: RunRow) -> bool:
        """Return whether a fork comes from a run that the target does not have, or has otherwise."""
        lacking = missing_origin(self._source, self._target, row)
        return lacking is not None and not (self._dry_run and lacking in self._moved)

    def _deleted(self, run_id: str) -> Moved | None:
        """Report that a run was deleted in the source, so that nothing is left to move."""
        row = self._source.get(run_id)
        if row is None or row.deleted_us is None:
            return None
        return Moved(run_id, Fate.DELETED, "it was deleted in the source")

    def stays(self, run_id: str) -> Moved:
        """Report which run has to be moved before this one."""
        try:
            row = self._source.get(run_id)
            if row is not None and row.deleted_us is None:
                return Moved(run_id, Fate.STAYS, self._waits_for(row))
        except RunDeleted:
            pass
        return Moved(run_id, Fate.DELETED, "it was deleted in the source")

    def _waits_for(self, row: RunRow) -> str:
        lacking = missing_origin(self._source, self._target, row)
        if lacking is not None:
            return (
                f"it is a fork and borrows from run {lacking!r}, which the target does not have (or "
                "not as far); move that one too"
            )
        if not (row.waiting_on or "").startswith("key:"):
            return "it has changed meanwhile; move again"
        _, effect, key = str(row.waiting_on).split(":", 2)
        has = self._source.key(effect, key)
        other = "another run" if has is None else f"run {has.run_id!r}"
        return f"it waits for key {key!r} of {effect}, which {other} has; move that one first"

    # -- the two commits -----------------------------------------------------------------------

    def _hold(self, row: RunRow) -> RunRow | None:
        """Hold a run in the source, so that no process executes it there. Return the row from before, or
        None if the run has changed meanwhile."""
        lease = Lease(row, acting=True)
        if row.owner is not None:
            # The calls of its dead owner ended with it; later no process could prove that.
            drafts, keys = doubts_of_the_dead(fold(self._source, row), self._source.now_us())
            write = Write(lease, drafts, changes=keys)
            if not isinstance(self._source.append([write])[0], Committed):
                return None
        before = lease.row
        held = draft(Kind.RUN_HELD, self._source.now_us(), self._facts(before))
        # Nobody goes on with it because what it waited for has come, and nobody tells it anything.
        changes = {
            "held_reason": HeldReason.MOVED.value,
            "waiting_on": None,
            "wake_us": None,
            "heard": None,
        }
        write = Write(lease, [held], row=changes, changes=[CloseInbox(row.run_id)])
        return before if isinstance(self._source.append([write])[0], Committed) else None

    def _marked(self, row: RunRow) -> bool:
        """Record the target in the source row of an ended run, before the run is written there: rolled
        back in both stores, its effects would be undone twice. False if it has changed meanwhile."""
        mark = f"{COPIED_TO}{display_url(self._target.url)} (namespace {self._target.namespace})"
        if self._dry_run or not may_be_undone_twice(row) or row.waiting_on == mark:
            return True
        write = Write(Lease(row, acting=True), [], row={"waiting_on": mark})
        return isinstance(self._source.append([write])[0], Committed)

    def _write_marked(self, before: RunRow) -> Moved:
        """Write a marked run; a target with another run of its id does not get it."""
        try:
            return self._write(before)
        except RunConflict:
            row = self._source.get(before.run_id)
            if row is not None and may_be_undone_twice(row):
                changes = {"waiting_on": before.waiting_on}
                self._source.append([Write(Lease(row, acting=True), [], row=changes)])
            raise

    def _facts(self, before: RunRow) -> dict[str, object]:
        target = self._target
        return {
            "reason": HeldReason.MOVED,
            "detail": f"it was moved to {display_url(target.url)} (namespace {target.namespace}) by "
            f"{self._actor}, and goes on there",
            "step": before.current_step or "",
            "actions": [
                command("resume", before.run_id, "--confirm")
                + "    (only if it is not there, or will never go on there)"
            ],
            "moved_to": {
                "url": display_url(target.url),
                "namespace": target.namespace,
                "store_id": target.store_id,
                "actor": self._actor,
                "row": msgspec.to_builtins(before),
            },
        }

    def _write(self, before: RunRow) -> Moved:
        """Write a run to the target, read it back and compare it with the run of the source."""
        whole = self._source.whole(before)
        if self._dry_run:
            known = self._target.get(before.run_id) is not None
            return Moved(before.run_id, Fate.THERE if known else Fate.MOVED)
        new = self._target.put_whole(whole)
        row = self._target.get(before.run_id)
        if row is None:
            raise StoreError(f"run {before.run_id!r} was written to {self._target.url} and is gone")
        if row.deleted_us is not None:
            raise RunDeleted(before.run_id)
        there = self._target.whole(row)
        compare(whole, there)
        self._hand_on_messages(whole, there)
        return Moved(before.run_id, Fate.MOVED if new else Fate.THERE)

    def _hand_on_messages(self, here: WholeRun, there: WholeRun) -> None:
        """Post the messages that the run received in the source after it was written to the target."""
        known = {message.message_id for message, _ in there.messages}
        for message, taken in here.messages:
            if taken is None and message.message_id not in known:
                self._target.post(there.row.run_id, message)


def compare(here: WholeRun, there: WholeRun) -> None:
    """Raise if the target does not have the run's journal, as far as it came from here."""
    run_id, last = here.row.run_id, here.row.last_seq
    came = [entry for entry in there.entries if entry.seq <= last]
    if came != here.entries:
        wrong = next(
            (a.seq for a, b in zip(here.entries, came, strict=False) if a != b), len(came) + 1
        )
        raise RunConflict(run_id, f"with another journal in the target, from entry {wrong} on")
    if any(there.chunks.get(number) != body for number, body in here.chunks.items()):
        raise Corrupt(f"a chunk of run {run_id!r} in the target", run_id=run_id, why="it differs")
    keys = {(key.effect, key.key) for key in there.keys}
    missing = [key.key for key in here.keys if (key.effect, key.key) not in keys]
    if missing:
        raise Corrupt(f"key {missing[0]!r} in the target", run_id=run_id, why="it is not there")


def display_url(url: str) -> str:
    """Return an address without its password and options."""
    return url if url.startswith("sqlite") else without_password(url).partition("?")[0]


def missing_origin(source: Store, target: Store, row: RunRow) -> str | None:
    """Return the run from which a fork borrows and which another store lacks, or has in an older state
    than the fork needs; None if there is no such run."""
    of = lineage.origin_of(row)
    if of is None:
        return None
    there = target.get(of.run)
    if there is None or there.next_chunk < of.base:
        return of.run
    for part in lineage.told_of(source, row).parts:
        other = target.get(part.run)
        entry = None
        if other is not None and other.deleted_us is None and other.last_seq >= part.seq:
            entry = target.entry(other.run_no, part.seq)
        if entry is None or entry.digest.hex() != part.head:
            return part.run
    return None


# -- limits of queues ---------------------------------------------------------------------------


def copy_limits(source: Store, target: Store, *, dry_run: bool = False) -> Iterator[str]:
    """Set the limits of queues in the target where it has none; yield the queues."""
    known = {state.limits.queue: state.limits for state in target.queues()}
    for state in source.queues():
        limits, name = state.limits, state.limits.queue
        if limits != Limits(name) and known.get(name, Limits(name)) == Limits(name):
            if not dry_run:
                target.set_limits(limits)
            yield name
