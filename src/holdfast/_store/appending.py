"""The append: whatever has gathered, in one transaction. This is the path that every step takes.

For each write: the fence (a guarded update of the run's row), then its entries, chunks, keys, taken
messages and what it changes beside its run. A write that is refused changes zero rows; an error of one
write rolls the transaction back, and the batch is repeated write by write.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from holdfast._core.rows import Applied, KeyState, Lease, RunRow, Write, apply
from holdfast._store import decisions, delivering, lookups, records
from holdfast._store.connections import Connection
from holdfast._store.contract import Broken, Committed, Fenced, KeyTaken, Outcome
from holdfast._store.database import Q
from holdfast._store.lending import OF_THE_DISK, lent
from holdfast._store.records import SEQ_BITS
from holdfast._store.writer import Changed, Reserve, Writer
from holdfast.errors import Regressed, StoreFailed, StoreFull, StoreUnusable

_ADVANCED = Q["run_advanced"]
_MOVED = Q["run_moved"]
_ENTRY = Q["add_entry"]
_CHUNK = Q["add_chunk"]
_PLAIN = frozenset(
    {"held_reason", "generation", "current_step", "degraded", "claims", "skips", "usage"}
)
"""Changes that `run_advanced` writes; any other sets what an index is made of."""


class Appender:
    """Commits batches of writes for one handle."""

    def __init__(
        self,
        writer: Writer,
        reserve: Reserve,
        is_dead: Callable[[int], bool],
        lease_us: int,
    ) -> None:
        self._writer = writer
        self._reserve = reserve
        self._is_dead = is_dead
        self._lease_us = lease_us

    def append(self, writes: Sequence[Write]) -> list[Outcome]:
        """Commit a batch; what one write did wrong is its own outcome."""
        with self._writer.database.lock:
            if len(writes) == 1:
                return [self._alone(writes[0])]
            if self._writer.regression is not None:
                return self._one_by_one(writes)
            try:
                return self._with_room(writes)
            except (StoreFailed, StoreFull, StoreUnusable):
                raise
            except Exception:
                return self._one_by_one(writes)

    def within(self, lease: Lease, work: Callable[[Any], Write]) -> Outcome:
        """Commit what a user does with the connection together with the write that comes of it."""
        writer = self._writer
        with writer.database.lock:
            if writer.regression is not None:
                raise self._regressed(writer.regression)
            connection = writer.begin()
            theirs: BaseException | None = None
            try:
                batch = _Batch(connection, writer, self._is_dead, self._lease_us)
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
        """Beat along with a transaction that may have taken long: while it was open, no pulse of
        this process could be written."""
        until_us = self._writer.now_us() + self._lease_us
        connection.execute(Q["renew_pulse"], (until_us, lease.row.owner))

    def _alone(self, write: Write) -> Outcome:
        lost = self._writer.regression
        if lost is not None and decisions.starts_effect(write):
            raise self._regressed(lost)
        return self._with_room([write])[0]

    @staticmethod
    def _regressed(lost: str) -> Regressed:
        return Regressed(
            f"{lost}. Effects wait until somebody has looked at it and accepted the store as "
            "it is: holdfast adopt"
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

    def _with_room(self, writes: Sequence[Write]) -> list[Outcome]:
        """Commit; on a full disk what has already happened may use the reserve."""
        try:
            return self._together(writes)
        except StoreFull:
            if not (any(map(decisions.has_outcome, writes)) and self._reserve.free()):
                raise
            return self._together(writes)

    def _together(self, writes: Sequence[Write]) -> list[Outcome]:
        writer = self._writer
        connection = writer.begin()
        try:
            batch = _Batch(connection, writer, self._is_dead, self._lease_us)
            outcomes = [batch.add(write) for write in writes]
            if batch.changed:
                writer.finish(connection, Changed(b"".join(batch.changed)))
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
    """One transaction being filled. `_rows` has what it has made of each run so far."""

    def __init__(
        self,
        connection: Connection,
        writer: Writer,
        is_dead: Callable[[int], bool],
        lease_us: int,
    ) -> None:
        self.changed: list[bytes] = []
        self.leases: list[tuple[Lease, RunRow]] = []
        self._rows: dict[int, tuple[bytes, RunRow]] = {}
        self._connection = connection
        self._database = writer.database
        self._is_dead = is_dead
        self._now_us = writer.now_us()
        self._lease_until_us = self._now_us + lease_us

    def stands(self, lease: Lease) -> bool:
        """Tell whether a lease still has its run, as it is now."""
        return lease.row.owner is not None and self._stands(lease.row)

    def _stands(self, row: RunRow) -> bool:
        guard = (row.run_no, row.epoch, row.last_seq, row.digest)
        return bool(self._fetch("run_stands", guard))

    def conclude(self) -> None:
        """Show the leases what was committed."""
        for lease, row in self.leases:
            lease.row = row

    def add(self, write: Write) -> Outcome:
        """Put one write into the transaction, all of it or nothing."""
        row = self._base(write)
        if row is None:
            return Fenced()
        if write.has_more:
            refused = self._refusal(write, row)
            if refused is not None:
                return refused if self._stands(row) else Fenced()
        try:
            applied = apply(row, write, self._lease_until_us)
        except AssertionError:
            if self._stands(row):
                raise
            return Fenced()  # What is illegal for somebody who lost the run does not matter.
        if not self._put_row(row, applied.row, write.changes):
            return Fenced()
        execute = self._connection.execute
        run_no = row.run_no
        for entry in applied.entries:
            execute(_ENTRY, records.entry_values(run_no, entry))
        for number, body in write.chunks:
            digest = records.chunk_digest(run_no, number, body)
            execute(_CHUNK, (run_no << SEQ_BITS | number, digest, body))
        if write.has_more:
            self._put_rest(write, applied)
        self._keep(write, row, applied.row)
        return Committed(applied.entries)

    def _base(self, write: Write) -> RunRow | None:
        """Return the row that the write stands on, or None if it has lost the run."""
        lease = write.lease
        row = lease.row
        known = self._rows.get(row.run_no)
        if known is not None:
            before, now = known
            if row.digest != before or row.epoch != now.epoch:
                return None
            row = now
        if lease.acting:
            return row if decisions.may_act(row, self._is_dead) else None
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
            self._connection.execute(_MOVED, records.moved_values(new) + guard)
        return self._connection.changes() == 1

    # -- keys and messages ---------------------------------------------------------------------

    def _fetch(self, name: str, values: object) -> list[object]:
        return self._database.fetch(self._connection, name, values)

    def _refusal(self, write: Write, row: RunRow) -> Outcome | None:
        """Say what others have that the write wants."""
        claim = write.claim
        if claim is not None:
            existing = lookups.find_key(self._fetch, row.namespace, claim.effect, claim.key)
            if existing is not None and not decisions.may_claim_key(existing, claim, row):
                return KeyTaken(existing)
        return delivering.refusal(self._fetch, row.namespace, write, self._now_us)

    def _put_rest(self, write: Write, applied: Applied) -> None:
        row = applied.row
        if write.claim is not None:
            self._put_key(decisions.claimed_key(write.claim, row))
        last = write.drafts[-1] if write.drafts else None
        for change in write.keys:
            existing = lookups.find_key(self._fetch, row.namespace, change.effect, change.key)
            self._put_key(decisions.changed_key(existing, change, row, last))
        if write.took:
            self._take(write.took, row)
        delivering.put_beside(self._connection, self._fetch, write, row)

    def _put_key(self, state: KeyState) -> None:
        values = records.key_values(state)
        self._connection.execute(Q["put_key"], values)

    def _take(self, took: Sequence[str], row: RunRow) -> None:
        for message_id in took:
            message = lookups.find_message(self._fetch, row.run_no, message_id)
            if message is None:
                lookups.messages(self._fetch, row.run_no)  # Says so if the index is damaged.
            assert message is not None, f"message {message_id!r} was never posted"
            assert message.taken_seq is None, f"message {message_id!r} was taken before"
            message.taken_seq = row.last_seq
            message.sealed()
            values = (message.taken_seq, message.digest, message.id)
            self._connection.execute(Q["take_message"], values)
            assert self._connection.changes() == 1, f"message {message_id!r} was not found again"


def advanced_values(row: RunRow) -> tuple[object, ...]:
    """Return what a step of a running run changes."""
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
