"""The append: whatever has gathered, of any number of runs, in one round trip.

What each write makes of its run is worked out here (`rows.apply`, the same in all stores); the
server is then told to change each row if it is still as it was seen, and to insert what belongs to
the rows that it changed. Where business keys, messages or what is beside the runs are concerned the
same happens inside a transaction that looks at them first.

A try that may have been committed before its connection broke is found out under the lock of its
rows: their digest is the one that was to be written, or it is not (I18).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from holdfast._core.entries import Kind
from holdfast._core.rows import Applied, KeyState, Lease, RunRow, Write, apply
from holdfast._store import decisions, lookups, records
from holdfast._store.contract import Broken, Committed, Fenced, KeyTaken, Outcome
from holdfast._store.postgres import regressing
from holdfast._store.postgres.beside import Beside
from holdfast._store.postgres.database import Database
from holdfast._store.postgres.link import Link
from holdfast._store.postgres.owners import Owners
from holdfast._store.postgres.packing import fetch_with
from holdfast._store.postgres.remembering import Remembered
from holdfast._store.postgres.sending import send
from holdfast._store.records import SEQ_MASK, MessageRow
from holdfast.errors import HoldfastError, Regressed, StoreError, StoreFailed

_OWN_FAULT = (HoldfastError, AssertionError, ValueError, LookupError, TypeError)
"""What a write can do wrong by itself."""


class Appender:
    """Commits batches of writes for one handle."""

    def __init__(
        self,
        database: Database,
        remembered: Remembered,
        owners: Owners,
        now_us: Callable[[], int],
        lease_until_us: Callable[[], int],
        namespace: str,
        tell: Callable[[], None],
    ) -> None:
        self._now_us = now_us
        self._tell = tell
        self._database = database
        self._remembered = remembered
        self._owners = owners
        self._lease_until_us = lease_until_us
        self._namespace = namespace

    def append(self, writes: Sequence[Write]) -> list[Outcome]:
        """Commit a batch; what one write did wrong is its own outcome."""
        if len(writes) == 1:
            outcome = self._together(writes)[0]
            if isinstance(outcome, Broken):
                raise outcome.error
            return [outcome]
        try:
            return self._together(writes)
        except StoreError:
            raise
        except Exception:
            return [self._alone(write) for write in writes]

    def _alone(self, write: Write) -> Outcome:
        try:
            return self._together([write])[0]
        except StoreError:
            raise
        except Exception as error:
            return Broken(error)

    def _together(self, writes: Sequence[Write]) -> list[Outcome]:
        looks_first = any(write.has_more for write in writes)
        before: list[Batch] = []

        def work(link: Link, tries: int) -> Batch:
            if tries == 0 and not looks_first:
                batch = self.batch(link)
                before.append(batch)
                batch.work_out(writes)
                batch.send(link)
                return batch
            with link.writing():
                batch = self.batch(link)
                batch.lock_names(writes)
                found = next((batch for batch in before if batch.was_committed(link)), None)
                if found is not None:
                    return found
                before.append(batch)
                batch.look(link, writes)
                batch.work_out(writes)
                batch.send(link)
                batch.send_rest(link)
            return batch

        return self.concluded(self._database.appending.again(work))

    def batch(self, link: Link) -> Batch:
        """Return an empty batch."""
        beside = Beside(fetch_with(link), self._namespace, self._now_us)
        lost = self._remembered.lost
        return Batch(link, self._owners, self._lease_until_us(), self._namespace, lost, beside)

    def concluded(self, batch: Batch) -> list[Outcome]:
        """Hand out what a committed batch came to."""
        for lease, row in batch.leases():
            lease.row = row
            self._remembered.acknowledged(row)
        if batch.tells:
            self._tell()
        stale = batch.stale()
        if stale:
            self._judge(batch, stale)
        return batch.outcomes

    def _judge(self, batch: Batch, stale: Sequence[RunRow]) -> None:
        """Rows that were not as they were seen: was the run taken over, or was its end lost?"""
        heads = {row.run_no: (row.last_seq, row.head) for row in stale}

        def work(link: Link, _tries: int) -> None:
            numbers = [
                run_no
                for run_no in regressing.missing(link, heads)
                if not self._remembered.was_said(run_no, heads[run_no][1])
            ]
            if numbers:
                at_us = max(row.updated_us for row in stale)
                for row in stale:
                    if row.run_no in numbers:
                        self._remembered.acknowledged(row)
                regressing.note(link, self._remembered, numbers, at_us)
                lost = Regressed(self._remembered.lost or "")
                batch.broken(dict.fromkeys(numbers, lost))

        self._database.work(work)


class Batch:
    """Writes on their way. `_made` has what they made of each run so far."""

    def __init__(
        self,
        link: Link,
        owners: Owners,
        lease_until_us: int,
        namespace: str,
        lost: str | None,
        beside: Beside,
    ) -> None:
        self.outcomes: list[Outcome] = []
        self._fetch = fetch_with(link)
        self._owners = owners
        self._lease_until_us = lease_until_us
        self._namespace = namespace
        self._lost = lost
        self._beside = beside
        self._ids: dict[str, int] = {}
        self._was: dict[int, RunRow] = {}
        self._made: dict[int, Applied] = {}
        self._chunks: list[tuple[int, int, bytes]] = []
        self._keys: dict[tuple[str, str], tuple[int, KeyState]] = {}
        self._took: list[MessageRow] = []
        self._leases: list[tuple[int, Lease, RunRow]] = []
        self._changed: set[int] = set()
        self.tells = False

    # -- what each write makes of its run ------------------------------------------------------

    def work_out(self, writes: Sequence[Write]) -> None:
        """Work out every write, in order; what one did wrong is its own outcome."""
        for write in writes:
            try:
                outcome = self.add(write)
            except StoreFailed:
                raise
            except _OWN_FAULT as error:
                outcome = Broken(error)
            self.outcomes.append(outcome)

    def add(self, write: Write) -> Outcome:
        """Work out one write, all of it or nothing."""
        if self._lost is not None and decisions.starts_effect(write):
            raise Regressed(
                f"{self._lost}. Effects wait until somebody has looked at it and accepted the "
                "store as it is: holdfast adopt"
            )
        row = self._base(write)
        if row is None:
            return Fenced()
        if write.claim is not None:
            taken = self._key(write.claim.effect, write.claim.key)
            if taken is not None and not decisions.may_claim_key(taken, write.claim, row):
                return KeyTaken(taken) if self._stands(row) else Fenced()
        refused = self._beside.refusal(write)
        if refused is not None:
            return refused if self._stands(row) else Fenced()
        applied = apply(row, write, self._lease_until_us)
        if write.has_more:
            _make_known(applied.row, row)
        keys = self._changed_keys(write, applied.row)
        took = self._taken(write, applied.row)
        if any(message.taken_seq is not None for message in took):
            # Whoever took it has written to the run: this write does not stand on it any more.
            assert not self._stands(row), f"a message of {row.run_id!r} was taken before"
            return Fenced()
        took = [_taken_by(message, applied.row) for message in took]
        self._keep(write, row, applied)
        self._keys.update({(key.effect, key.key): (row.run_no, key) for key in keys})
        if self._beside.stands(self._was[row.run_no]) is not False:
            self._took += self._beside.taken(took)
            self._beside.keep(write, applied.row, self._made_so_far)
        return Committed(applied.entries)

    def _made_so_far(self, run_id: str) -> RunRow | None:
        """Return a row as the writes before have made it, if they will be committed."""
        run_no = self._ids.get(run_id)
        if run_no is None or not self._beside.stands(self._was[run_no]):
            return None
        return self._made[run_no].row

    def _base(self, write: Write) -> RunRow | None:
        """Return the row that the write stands on, or None if it has lost the run."""
        lease = write.lease
        row = lease.row
        made = self._made.get(row.run_no)
        if made is not None:
            if row.digest != self._was[row.run_no].digest or row.epoch != made.row.epoch:
                return None
            row = made.row
        if lease.acting:
            is_dead = self._owners.is_dead
            return row if decisions.may_act(row, lambda it: is_dead(it, self._fetch)) else None
        return row if row.owner is not None else None

    def _keep(self, write: Write, before: RunRow, applied: Applied) -> None:
        row = applied.row
        known = self._made.get(row.run_no)
        self._was.setdefault(row.run_no, before)
        self._ids[row.run_id] = row.run_no
        entries = applied.entries if known is None else known.entries + applied.entries
        self._made[row.run_no] = Applied(entries, row)
        self._chunks += [(row.run_no, number, body) for number, body in write.chunks]
        self._leases.append((len(self.outcomes), write.lease, row))
        self.tells = (
            self.tells
            or row.status is not before.status
            or row.owner != before.owner
            or bool(write.posts or write.opens or write.closes)
            or any(draft.kind is Kind.EMITTED for draft in write.drafts)
        )

    # -- keys and messages ---------------------------------------------------------------------

    def lock_names(self, writes: Sequence[Write]) -> None:
        """Let no other transaction look at the same keys, memories and inboxes meanwhile; always in
        the same order."""
        keys = {
            (part.effect, part.key)
            for write in writes
            for part in [*([write.claim] if write.claim else ()), *write.keys]
        }
        numbers = {records.name_hash(self._namespace, *key) for key in keys}
        numbers.update(self._beside.names(writes))
        if numbers:
            self._fetch("lock_names", (sorted(numbers),))

    def look(self, link: Link, writes: Sequence[Write]) -> None:
        """See what the writes depend on beside their runs."""
        self._beside.look(link, writes)

    def _key(self, effect: str, key: str) -> KeyState | None:
        known = self._keys.get((effect, key))
        if known is not None:
            return known[1]
        return lookups.find_key(self._fetch, self._namespace, effect, key)

    def _stands(self, row: RunRow) -> bool:
        was = self._was.get(row.run_no, row)
        stands = self._beside.stands(was)
        if stands is not None:
            return stands
        return bool(self._fetch("run_stands", (was.run_no, was.epoch, was.last_seq, was.digest)))

    def _changed_keys(self, write: Write, row: RunRow) -> list[KeyState]:
        states: dict[tuple[str, str], KeyState] = {}
        claim = write.claim
        if claim is not None:
            states[claim.effect, claim.key] = decisions.claimed_key(claim, row)
        last = write.drafts[-1] if write.drafts else None
        for change in write.keys:
            at = (change.effect, change.key)
            existing = states.get(at) or self._key(*at)
            states[at] = decisions.changed_key(existing, change, row, last)
        return list(states.values())

    def _taken(self, write: Write, row: RunRow) -> list[MessageRow]:
        if not write.took:
            return []
        found = self._fetch("messages_by_ids", (row.run_no, list(write.took)))
        known = {message.message_id: message for message in map(records.message_row, found)}
        taken: list[MessageRow] = []
        for message_id in write.took:
            message = self._beside.posted(row.run_no, message_id) or known.get(message_id)
            assert message is not None, f"message {message_id!r} was never posted"
            taken.append(message)
        return taken

    # -- the server ----------------------------------------------------------------------------

    def send(self, link: Link) -> None:
        """Change the rows that are still as they were seen, and insert what belongs to them."""
        changes = [(self._was[run_no], made) for run_no, made in self._made.items()]
        self._changed = send(link, changes, self._chunks)
        self.broken({run_no: None for run_no in self._made if run_no not in self._changed})

    def send_rest(self, link: Link) -> None:
        """Write the keys and messages of the runs that changed, and what is beside them, inside the
        transaction."""
        rest = self._beside.statements(self._changed)
        if rest:
            link.fetch_each(*rest)
        for run_no, key in self._keys.values():
            if run_no in self._changed:
                link.change("put_key", records.key_values(key))
        for message in self._took:
            if message.run_no in self._changed:
                at = (message.taken_seq, message.digest, message.run_no, message.id & SEQ_MASK)
                assert link.change("take_message", at) == 1, "the message was taken meanwhile"

    def was_committed(self, link: Link) -> bool:
        """Tell, under the lock of its rows, whether an earlier try went through."""
        numbers = sorted(self._made)
        for run_no in numbers:
            link.fetch("lock_run", (run_no,))
        found = {values[0]: values[-1] for values in link.fetch("runs_by_numbers", (numbers,))}
        self._changed = {no for no, made in self._made.items() if found.get(no) == made.row.digest}
        self.broken({run_no: None for run_no in self._made if run_no not in self._changed})
        return bool(self._changed)

    def broken(self, errors: dict[int, Exception | None]) -> None:
        """Set the outcome of every write to these runs: an error, or fenced."""
        for at, _, row in self._leases:
            if row.run_no in errors:
                error = errors[row.run_no]
                self.outcomes[at] = Fenced() if error is None else Broken(error)

    def leases(self) -> list[tuple[Lease, RunRow]]:
        """Return the leases whose writes are durable now, with their rows."""
        return [(lease, row) for _, lease, row in self._leases if row.run_no in self._changed]

    def stale(self) -> list[RunRow]:
        """Return the rows that were not as they were seen."""
        return [was for run_no, was in self._was.items() if run_no not in self._changed]


def _taken_by(message: MessageRow, row: RunRow) -> MessageRow:
    message.taken_seq = row.last_seq
    return message.sealed()


def _make_known(new: RunRow, before: RunRow) -> None:
    """A write that changes nothing of its run leaves a mark in the row all the same: whether it was
    committed is read from there."""
    if new.digest == before.digest:
        new.lease_until_us += 1
        new.sealed()
