"""The append: commit a batch of writes in one transaction. Every step takes this path.

For each write: the decisions of its changes, the fence (a guarded update of the run's row), its
entries and chunks, and the statements of its changes. A write that is refused changes zero rows; an
error of one write rolls the transaction back, and the batch is repeated write by write.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Sequence
from typing import Any

from holdfast._engine.journal.changes import TakeMessage
from holdfast._engine.journal.rows import SEQ_BITS, Lease, Refused, RunRow, Write, apply
from holdfast._stores import claim_rules, lookups, row_codec
from holdfast._stores.contract import Broken, Committed, Fenced, Outcome
from holdfast._stores.side_tables import Overlay, SideTables
from holdfast._stores.sqlite.apsw_types import Connection
from holdfast._stores.sqlite.sqlite_database import Q
from holdfast._stores.sqlite.sqlite_user_connection import OF_THE_DISK, lent
from holdfast._stores.sqlite.transaction_writer import Changed, Reserve, Writer
from holdfast.errors import KeyConflict, StoreFailed, StoreFull, StoreLostData, StoreUnusable

_ADVANCED = Q["run_advanced"]
_MOVED = Q["run_moved"]
_ENTRY = Q["add_entry"]
_CHUNK = Q["add_chunk"]
_PLAIN = frozenset(
    {"held_reason", "generation", "current_step", "degraded", "claims", "skips", "usage"}
)
"""The columns that `run_advanced` writes; any other column is part of an index."""


class Appender:
    """Commits batches of writes for one handle."""

    def __init__(
        self,
        writer: Writer,
        reserve: Reserve,
        is_dead: Callable[[int], bool],
        lease_us: int,
        namespace: str,
    ) -> None:
        self._writer = writer
        self._reserve = reserve
        self._is_dead = is_dead
        self._lease_us = lease_us
        self._namespace = namespace

    def append(self, writes: Sequence[Write]) -> list[Outcome]:
        """Commit a batch; an error of one write is the outcome of that write."""
        with self._writer.database.lock:
            if self._writer.regression is not None:
                return self._one_by_one(writes) if len(writes) > 1 else [self._alone(writes[0])]
            try:
                return self._together(writes)
            except StoreFull as full:
                return self._with_reserve(writes, full)
            except (StoreFailed, StoreUnusable):
                raise
            except Exception:
                if len(writes) == 1:
                    raise
                return self._one_by_one(writes)

    def within(self, lease: Lease, work: Callable[[Any], Write]) -> Outcome:
        """Commit the user's statements on the connection together with the resulting write."""
        writer = self._writer
        with writer.database.lock:
            if writer.regression is not None:
                raise self._regressed(writer.regression)
            connection = writer.begin()
            theirs: BaseException | None = None
            try:
                batch = _Batch(connection, writer, self._is_dead, self._lease_us, self._namespace)
                outcome: Outcome = Fenced()
                if batch.stands(lease):
                    try:
                        write = lent(connection, lease.row.run_id, work)
                    except BaseException as error:
                        theirs = error
                        raise
                    outcome = batch.add(write)
                if isinstance(outcome, Committed):
                    self._renew(connection, lease)
                    writer.finish(connection, Changed(b"".join(batch.changed)))
                else:
                    connection.execute(Q["rollback"])
            except BaseException as error:
                if error is theirs and not isinstance(error, OF_THE_DISK):
                    writer.roll_back(connection)
                    raise
                ours = writer.abandoned(connection, error)
                if ours is error:
                    raise
                raise ours from error
            finally:
                writer.unlock_side()
            batch.conclude()
            return outcome

    def _renew(self, connection: Connection, lease: Lease) -> None:
        """Renew the lease in a transaction that may have taken long: while it was open, this
        process could not write its heartbeat."""
        until_us = self._writer.now_us() + self._lease_us
        connection.execute(Q["renew_pulse"], (until_us, lease.row.owner))

    def _alone(self, write: Write) -> Outcome:
        lost = self._writer.regression
        if lost is not None and claim_rules.starts_effect(write):
            raise self._regressed(lost)
        try:
            return self._together([write])[0]
        except StoreFull as full:
            return self._with_reserve([write], full)[0]

    @staticmethod
    def _regressed(lost: str) -> StoreLostData:
        return StoreLostData(
            f"{lost}. Effects wait until somebody has looked at it and accepted the store as "
            "it is: holdfast store accept-data-loss"
        )

    def _one_by_one(self, writes: Sequence[Write]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        for write in writes:
            try:
                outcomes.append(self._alone(write))
            except (StoreFailed, StoreFull, StoreUnusable):
                raise
            except Exception as error:
                outcomes.append(Broken(error))
        return outcomes

    def _with_reserve(self, writes: Sequence[Write], full: StoreFull) -> list[Outcome]:
        """Commit on a full disk: outcomes that have already happened may use the reserve."""
        if not (any(map(claim_rules.has_outcome, writes)) and self._reserve.free()):
            raise full
        return self._together(writes)

    def _together(self, writes: Sequence[Write]) -> list[Outcome]:
        writer = self._writer
        connection = writer.begin()
        try:
            batch = _Batch(connection, writer, self._is_dead, self._lease_us, self._namespace)
            outcomes = list(map(batch.add, writes))
            if batch.changed:
                writer.finish(connection, Changed(b"".join(batch.changed)), batch.now_us)
            else:
                connection.execute(Q["rollback"])
        except BaseException as error:
            ours = writer.abandoned(connection, error)
            if ours is error:
                raise
            raise ours from error
        finally:
            writer.unlock_side()
        batch.conclude()
        return outcomes


class _Batch:
    """One transaction that is being filled. `_rows` has the current row of each run."""

    def __init__(
        self,
        connection: Connection,
        writer: Writer,
        is_dead: Callable[[int], bool],
        lease_us: int,
        namespace: str,
    ) -> None:
        self.changed: list[bytes] = []
        self.leases: list[tuple[Lease, RunRow]] = []
        self._rows: dict[int, tuple[bytes, RunRow]] = {}
        self._connection = connection
        self._database = writer.database
        self._is_dead = is_dead
        self.now_us = writer.now_us()
        self._lease_until_us = self.now_us + lease_us
        self._namespace = namespace

    def stands(self, lease: Lease) -> bool:
        """Return whether a lease still owns its run, in its current state."""
        return lease.row.owner is not None and self._stands(lease.row)

    def _stands(self, row: RunRow) -> bool:
        guard = (row.run_no, row.epoch, row.last_seq, row.digest)
        return bool(self._fetch("run_stands", guard))

    def conclude(self) -> None:
        """Set the leases to the committed rows."""
        for lease, row in self.leases:
            lease.row = row

    def add(self, write: Write) -> Outcome:
        """Add one write to the transaction, completely or not at all."""
        row = self._base(write)
        if row is None:
            return Fenced()
        refused: Refused | None = None
        try:
            applied = apply(row, write, self._lease_until_us)
            if write.changes:
                refused = self._side.decide(write.changes, applied, self.now_us)
        except (AssertionError, KeyConflict):
            if self._stands(row):
                self._check_inbox(write)
                raise
            return Fenced()  # Skip validation: the caller no longer owns the run.
        if refused is not None:
            return refused if self._stands(row) else Fenced()
        if not self._put_row(row, applied.row, write.row):
            if write.changes:
                self._side.discard()
            return Fenced()
        execute = self._connection.execute
        run_no = row.run_no
        for entry in applied.entries:
            execute(_ENTRY, row_codec.entry_values(run_no, entry))
        for number, body in write.chunks:
            digest = row_codec.chunk_digest(run_no, number, body)
            execute(_CHUNK, (run_no << SEQ_BITS | number, digest, body))
        if write.changes:
            self._put_changes()
        self._keep(write, row, applied.row)
        return Committed(applied.entries)

    def _base(self, write: Write) -> RunRow | None:
        """Return the row on which the write is based, or None if the write has lost the run."""
        lease = write.lease
        row = lease.row
        known = self._rows.get(row.run_no)
        if known is not None:
            before, now = known
            if row.digest != before or row.epoch != now.epoch:
                return None
            row = now
        if lease.acting:
            return row if claim_rules.may_act(row, self._is_dead) else None
        return row if row.owner is not None else None

    def _keep(self, write: Write, before: RunRow, after: RunRow) -> None:
        seen = self._rows.get(after.run_no)
        self._rows[after.run_no] = (before.digest if seen is None else seen[0], after)
        self.leases.append((write.lease, after))
        self.changed.append(after.digest)

    def _put_row(self, old: RunRow, new: RunRow, changes: Collection[str]) -> bool:
        guard = (old.run_no, old.epoch, old.last_seq, old.digest)
        stays = (new.status, new.owner, new.epoch) == (old.status, old.owner, old.epoch)
        if stays and (not changes or _PLAIN.issuperset(changes)):
            self._connection.execute(_ADVANCED, advanced_values(new) + guard)
        else:
            self._connection.execute(_MOVED, row_codec.moved_values(new) + guard)
        return self._connection.changes() == 1

    # -- side tables ---------------------------------------------------------------------------

    def _fetch(self, name: str, values: object) -> list[object]:
        return self._database.fetch(self._connection, name, values)

    @functools.cached_property
    def _tables(self) -> SideTables:
        return SideTables(self._fetch, self._namespace)

    @functools.cached_property
    def _side(self) -> Overlay:
        return Overlay(self._tables.read)

    def _put_changes(self) -> None:
        for name, values in self._tables.statements(self._side.accept()):
            self._connection.execute(Q[name], values)
            if name == "take_message":
                assert self._connection.changes() == 1, "the message was not found again"

    def _check_inbox(self, write: Write) -> None:
        """Raise `Corrupt` if a message cannot be taken because the index of the inbox is damaged."""
        if write.of(TakeMessage):
            lookups.messages(self._fetch, write.lease.row.run_no)


def advanced_values(row: RunRow) -> tuple[object, ...]:
    """Return the values that a step of a running run changes."""
    return (
        row.held_reason,
        row.generation,
        row.lease_until_us,
        row.last_seq,
        row.head,
        row.next_chunk,
        row.current_step,
        row.steps,
        row.attempts,
        row.degraded,
        row.claims,
        row.skips,
        row.usage,
        row.updated_us,
        row.digest,
    )
