"""The append: commit a batch of writes of any number of runs in one round trip.

The next row of each run is computed here (`rows.apply`, the same in all stores). One statement then
changes each row that is still as it was read, and inserts the entries of the changed rows. Writes
with business keys, messages or side tables do the same inside a transaction that first reads those.

If a connection breaks during a commit, the next try checks under the lock of the rows whether the
earlier one was committed: whether they have the digests that were to be written (I18).

All transactions take locks in one order, so that two batches can wait for each other but never
deadlock:

    1  names      keys, memories and inboxes: advisory locks, sorted
    2  rows       of the written runs, by number
    3  accounts       by the name of their root

Sending a message does not lock the row of the receiving run: a parent and its child, each with its
own row locked, may send to each other. The lock on the name of an inbox is held until the commit,
so the numbers of its messages become visible in order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from holdfast._engine.journal.changes import PostMessage, Spend, TakeMessage
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.rows import Applied, Lease, Refused, RunRow, Write, apply
from holdfast._stores import claim_rules, row_codec, side_rows
from holdfast._stores.contract import Broken, Committed, Fenced, Outcome
from holdfast._stores.lookups import Fetch
from holdfast._stores.postgres import regression
from holdfast._stores.postgres.acknowledged_heads import Remembered
from holdfast._stores.postgres.postgres_database import Database
from holdfast._stores.postgres.postgres_owners import Owners
from holdfast._stores.postgres.row_statement import send
from holdfast._stores.postgres.server_connection import Link
from holdfast._stores.side_tables import Overlay, Place, Put, SideTables, Statement
from holdfast.errors import HoldfastError, KeyConflict, StoreError, StoreFailed, StoreLostData

_OWN_FAULT = (HoldfastError, AssertionError, ValueError, LookupError, TypeError)
"""Errors of one write that do not affect the rest of its batch."""


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
        """Commit a batch; an error of one write is the outcome of that write."""
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
        looks_first = any(write.changes for write in writes)
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
                batch.lock_names(link, writes)
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
        lost, until_us = self._remembered.lost, self._lease_until_us()
        return Batch(link, self._owners, until_us, self._namespace, lost, self._now_us)

    def concluded(self, batch: Batch) -> list[Outcome]:
        """Return the outcomes of a committed batch."""
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
        """Check changed rows: was the run taken over, or did the server lose its end?"""
        heads = {row.run_no: (row.last_seq, row.head) for row in stale}

        def work(link: Link, _tries: int) -> None:
            numbers = [
                run_no
                for run_no in regression.missing(link, heads)
                if not self._remembered.was_said(run_no, heads[run_no][1])
            ]
            if numbers:
                at_us = max(row.updated_us for row in stale)
                for row in stale:
                    if row.run_no in numbers:
                        self._remembered.acknowledged(row)
                regression.note(link, self._remembered, numbers, at_us)
                lost = StoreLostData(self._remembered.lost or "")
                batch.broken(dict.fromkeys(numbers, lost))

        self._database.work(work)


class Batch:
    """Writes that are being committed. `_made` has the current row of each run."""

    def __init__(
        self,
        link: Link,
        owners: Owners,
        lease_until_us: int,
        namespace: str,
        lost: str | None,
        now_us: Callable[[], int],
    ) -> None:
        self.outcomes: list[Outcome] = []
        self._fetch = link.fetch
        self._owners = owners
        self._lease_until_us = lease_until_us
        self._namespace = namespace
        self._lost = lost
        self._now_us = now_us
        self._beside = Beside()
        self._tables = ServerTables(self._fetch, namespace, self._run)
        self._overlay = Overlay(self._tables.read)
        self._puts: dict[Place, Put] = {}
        self._ids: dict[str, int] = {}
        self._was: dict[int, RunRow] = {}
        self._made: dict[int, Applied] = {}
        self._chunks: list[tuple[int, int, bytes]] = []
        self._leases: list[tuple[int, Lease, RunRow]] = []
        self._changed: set[int] = set()
        self.tells = False

    # -- the next rows -------------------------------------------------------------------------

    def work_out(self, writes: Sequence[Write]) -> None:
        """Compute every write, in order; an error of one write is the outcome of that write."""
        for write in writes:
            try:
                outcome = self.add(write)
            except StoreFailed:
                raise
            except _OWN_FAULT as error:
                outcome = Broken(error)
            self.outcomes.append(outcome)

    def add(self, write: Write) -> Outcome:
        """Compute one write, completely or not at all."""
        if self._lost is not None and claim_rules.starts_effect(write):
            raise StoreLostData(
                f"{self._lost}. Effects wait until somebody has looked at it and accepted the "
                "store as it is: holdfast store accept-data-loss"
            )
        row = self._base(write)
        if row is None:
            return Fenced()
        applied = apply(row, write, self._lease_until_us)
        if write.changes:
            _make_known(applied.row, row)
            refused = self._decided(write, row, applied)
            if refused is not None:
                return refused
        self._keep(write, row, applied)
        return Committed(applied.entries)

    def _decided(self, write: Write, row: RunRow, applied: Applied) -> Refused | Fenced | None:
        """Let the changes of a write decide. A write of a lost run is fenced."""
        try:
            refused = self._overlay.decide(write.changes, applied, self._now_us())
        except (AssertionError, KeyConflict):
            if self._stands(row):
                raise
            return Fenced()
        if not self._stands(row):
            self._overlay.discard()
            return Fenced()
        if refused is None:
            self._accept()
        return refused

    def _accept(self) -> None:
        """Collect the rows that accepted writes put: one statement for each row, with its last
        value."""
        for put in self._overlay.accept():
            first = self._puts.pop(put.place, put)  # Keep the order of the last change.
            self._puts[put.place] = Put(put.place, first.before, put.after)

    def _run(self, run_id: str) -> RunRow | None:
        """Return the row of a run that receives a message, after the earlier writes."""
        run_no = self._ids.get(run_id)
        if run_no is not None and self._beside.stands(self._was[run_no]):
            return self._made[run_no].row
        return self._beside.targets.get(run_id)

    def _base(self, write: Write) -> RunRow | None:
        """Return the row on which the write is based, or None if the write has lost the run."""
        lease = write.lease
        row = lease.row
        made = self._made.get(row.run_no)
        if made is not None:
            if row.digest != self._was[row.run_no].digest or row.epoch != made.row.epoch:
                return None
            row = made.row
        if lease.acting:
            is_dead = self._owners.is_dead
            return row if claim_rules.may_act(row, lambda it: is_dead(it, self._fetch)) else None
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
            or any(change.notifies for change in write.changes)
            or any(draft.kind is Kind.VALUE_EMITTED for draft in write.drafts)
        )

    # -- side tables ---------------------------------------------------------------------------

    def lock_names(self, link: Link, writes: Sequence[Write]) -> None:
        """Lock the keys, memories and inboxes of the batch, always in the same order."""
        numbers = name_locks(self._namespace, writes)
        if numbers:
            link.fetch("lock_names", (numbers,))

    def look(self, link: Link, writes: Sequence[Write]) -> None:
        """Read the rows of side tables on which the writes depend."""
        if any(write.changes for write in writes):
            self._overlay.know(self._beside.look(link, self._fetch, self._namespace, writes))

    def _stands(self, row: RunRow) -> bool:
        was = self._was.get(row.run_no, row)
        stands = self._beside.stands(was)
        if stands is not None:
            return stands
        return bool(self._fetch("run_stands", (was.run_no, was.epoch, was.last_seq, was.digest)))

    # -- the server ----------------------------------------------------------------------------

    def send(self, link: Link) -> None:
        """Change the rows that are still as they were read, and insert their entries."""
        changes = [(self._was[run_no], made) for run_no, made in self._made.items()]
        self._changed = send(link, changes, self._chunks)
        self.broken({run_no: None for run_no in self._made if run_no not in self._changed})

    def send_rest(self, link: Link) -> None:
        """Write the side tables, inside the transaction. The rows of the runs are locked, so every
        accepted write has changed its run."""
        statements = self._tables.statements(self._puts.values())
        if others := [it for it in statements if it[0] != "take_message"]:
            link.fetch_each(*others)
        for name, values in statements:
            if name == "take_message":
                assert link.change(name, values) == 1, "the message was taken meanwhile"

    def was_committed(self, link: Link) -> bool:
        """Return whether an earlier try was committed, under the lock of its rows."""
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
        """Return the leases whose writes are durable, with their rows."""
        return [(lease, row) for _, lease, row in self._leases if row.run_no in self._changed]

    def stale(self) -> list[RunRow]:
        """Return the rows that had changed since they were read."""
        return [was for run_no, was in self._was.items() if run_no not in self._changed]


def _make_known(new: RunRow, before: RunRow) -> None:
    """Mark the row even if a write changes nothing else of its run: the mark shows whether the
    write was committed."""
    if new.digest == before.digest:
        new.lease_until_us += 1
        new.sealed()


# -- locks and reads of a batch -----------------------------------------------------------------


def name_locks(namespace: str, writes: Sequence[Write]) -> list[int]:
    """Return the lock numbers of all names of a batch, in the common order."""
    names = {change.lock(namespace) for write in writes for change in write.changes}
    return sorted(row_codec.name_hash(*name) for name in names if name is not None)


class Beside:
    """The rows that a batch locks and reads before its writes decide. They stay unchanged until the
    commit."""

    def __init__(self) -> None:
        self.standing: dict[int, bytes] | None = None
        self.targets: dict[str, RunRow] = {}
        """Rows of the runs that receive messages."""

    def stands(self, was: RunRow) -> bool | None:
        """Return whether the row of a run is still as the batch read it; None if it was not
        read."""
        return None if self.standing is None else self.standing.get(was.run_no) == was.digest

    def look(
        self, link: Link, fetch: Fetch, namespace: str, writes: Sequence[Write]
    ) -> Iterator[tuple[Place, Any]]:
        """Lock the rows and the accounts, and yield the rows that were read."""
        numbers = sorted({write.lease.row.run_no for write in writes})
        roots = sorted({spend.root for write in writes for spend in write.of(Spend)})
        posts = [post for write in writes for post in write.of(PostMessage)]
        queries: list[Statement] = [("lock_runs", (numbers,))]
        if roots:
            queries.append(("accounts_locked", (namespace, roots)))
        if posts:
            ids, names = [it.run_id for it in posts], [it.message.message_id for it in posts]
            queries += [
                ("runs_by_ids", (namespace, sorted(set(ids)))),
                ("inbox_ends", (namespace, sorted(set(ids)))),
                ("messages_there", (ids, names, namespace)),
            ]
        rows, *about = link.fetch_each(*queries)
        self.standing = dict(rows)
        if roots:
            yield from self._accounts(fetch, namespace, roots, about.pop(0))
        if posts:
            targets, ends, there = about
            self.targets = {row.run_id: row for row in map(row_codec.run_row, targets)}
            yield from self._inboxes(posts, dict(ends), {tuple(it) for it in there})
        for write in writes:
            yield from self._messages_to_take(fetch, write)

    def _accounts(
        self, fetch: Fetch, namespace: str, roots: Sequence[str], found: Sequence[Any]
    ) -> Iterator[tuple[Place, Any]]:
        """Yield the accounts; a missing one is confirmed through both paths."""
        accounts = {account.root: account for account in map(side_rows.account_of, found)}
        for root in roots:
            if root not in accounts and side_rows.find_account(fetch, namespace, root) is not None:
                (values,) = fetch("accounts_locked", (namespace, [root]))  # Created just now.
                accounts[root] = side_rows.account_of(values)
            yield ("accounts", root), accounts.get(root)

    def _inboxes(
        self, posts: Sequence[PostMessage], ends: dict[int, int], there: set[tuple[Any, ...]]
    ) -> Iterator[tuple[Place, Any]]:
        for target in self.targets.values():
            yield ("inbox_end", target.run_no), ends.get(target.run_no, 0)
        for post in posts:
            if post.run_id in self.targets:
                at = (self.targets[post.run_id].run_no, post.message.message_id)
                yield ("inbox", *at), (True if at in there else None)  # Only its existence.

    def _messages_to_take(self, fetch: Fetch, write: Write) -> Iterator[tuple[Place, Any]]:
        names = [change.message_id for change in write.of(TakeMessage)]
        if names:
            run_no = write.lease.row.run_no
            for message in map(row_codec.message_row, fetch("messages_by_ids", (run_no, names))):
                yield ("inbox", run_no, message.message_id), message


class ServerTables(SideTables):
    """Reads and writes the tables on a server."""

    def __init__(self, fetch: Fetch, namespace: str, run: Any) -> None:
        super().__init__(fetch, namespace)
        self._run = run

    def read(self, table: str, *at: Any) -> Any:
        """Return a verified row. Runs and inboxes were read beforehand."""
        if table == "runs":
            return self._run(*at)
        return None if table == "inbox" else super().read(table, *at)
