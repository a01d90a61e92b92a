"""The operations of a store, each written once for all databases.

SqlStore ─┬─ Reader    runs named statements
          ├─ Writer    runs work in a transaction (`Transaction`)
          └─ Owners    liveness of processes

A dialect is a subclass with the operations that differ between databases: append, start and claim,
heartbeats of owners, wake-up of waiting threads, the clock, and detection of lost commits. The text
of the statements is in the dialect's `queries.sql`.

Work in a transaction may be repeated after its connection broke, so it has to find out whether an
earlier try was committed (I18): `tx.tries` is the number of earlier tries.
"""

from __future__ import annotations

import builtins
import functools
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

import msgspec

from holdfast._engine.journal import changes
from holdfast._engine.journal.entries import Entry
from holdfast._engine.journal.lifecycle import CLAIMABLE, ENDED
from holdfast._engine.journal.rows import (
    Account,
    Applied,
    KeyState,
    Lease,
    Memo,
    Message,
    Question,
    RunRow,
    apply,
)
from holdfast._engine.telemetry.measures import Measure
from holdfast._stores import (
    claim_rules,
    fleet_rows,
    journal_reader,
    lineage,
    lookups,
    measure_rows,
    row_codec,
    side_rows,
)
from holdfast._stores.contract import (
    Busy,
    Damage,
    Limits,
    Measured,
    NewRun,
    Posted,
    Progress,
    Pulse,
    Query,
    QueueState,
    ScheduleRow,
    Started,
    WholeRun,
    no_progress,
)
from holdfast._stores.sql.database import Owners, Reader, Snapshot, Transaction, Writer
from holdfast._stores.sql.verify import verify
from holdfast.errors import Corrupt, RunConflict, RunDeleted, RunNotFound

ReaderT = TypeVar("ReaderT", bound=Reader)
WriterT = TypeVar("WriterT", bound=Writer)
OwnersT = TypeVar("OwnersT", bound=Owners)

PAGE = 100
"""How many values of memories are read per page."""
DROPPED_AT_ONCE = 1000
"""How many values of memories one transaction drops."""


class SqlStore(ABC, Generic[ReaderT, WriterT, OwnersT]):
    """One handle on a store in a database."""

    url: str
    namespace: str
    store_id: str
    lease_s: float
    now_us: Callable[[], int]
    _database: ReaderT
    _writer: WriterT
    _owners: OwnersT

    # -- runs ----------------------------------------------------------------------------------

    def start(self, new: NewRun, owner: int | None) -> Started:
        return self.start_all([(new, owner)])[0]

    @abstractmethod
    def start_all(self, news: Sequence[tuple[NewRun, int | None]]) -> builtins.list[Started]: ...

    def claim(self, run_id: str, owner: int, at_us: int) -> Lease | Busy:
        owners, made = self._owners, builtins.list[RunRow]()

        def work(tx: Transaction) -> Lease | Busy:
            row = tx.locked_run(self.namespace, run_id)
            if row is None:
                raise RunNotFound(run_id, f"namespace {self.namespace!r}")
            if any(row.digest == before.digest for before in made):
                return _claimed(row)  # By an earlier try.
            write = claim_rules.claim_of(
                row,
                owner,
                at_us,
                lambda other: owners.is_dead(other, tx.fetch),
                lambda other: owners.pulse_until_us(other, tx.fetch),
            )
            if write is None:
                return Busy(row, claim_rules.refusal(row, owners.name(row.owner, tx.fetch)))
            applied = apply(row, write, self._lease_until_us())
            made.append(applied.row)
            tx.put_run(row, applied)
            tx.changed(applied.row.digest, applied.row)
            return _claimed(applied.row)

        return self._writer.transact(work)

    def get(self, run_id: str) -> RunRow | None:
        return lookups.find_run(self._database.read, self.namespace, run_id)

    def by_number(self, run_no: int) -> RunRow | None:
        return lookups.run_by_number(self._database.read, run_no, self._writer.last_run_no)

    def list(self, query: Query) -> builtins.list[RunRow]:
        values = row_codec.list_values(query, self.namespace)
        if query.parent is None:
            found = self._database.read("list_runs", values)
        else:
            found = self._database.read_by_index("list_children", values)
        rows = [row_codec.run_row_or_held(values) for values in found]
        if not _is_filtered(query):
            last = self._writer.last_run_no
            self._database.check_numbers(rows, query.limit, query.before_run_no, last)
        return rows

    def waiting_on(self, token: str) -> builtins.list[RunRow]:
        rows = self._database.read_by_index("runs_waiting_on", (token, self.namespace))
        return [row_codec.run_row(values) for values in rows]

    def held_on(self, prefix: str, after: str = "", limit: int = 500) -> builtins.list[str]:
        first, end = claim_rules.tokens_within(prefix, after)
        values = {"namespace": self.namespace, "after": first, "end": end, "limit": limit}
        return [token for (token,) in self._database.read("held_on", values)]

    def claimable(self, at_us: int, limit: int) -> builtins.list[RunRow]:
        values = {**self._left(at_us), "limit": limit}
        return builtins.list(
            row_codec.undamaged(self._database.read_by_index("claimable_runs", values))
        )

    def _left(self, at_us: int) -> dict[str, object]:
        """Return the values of the condition `is_left`: owners whose runs are abandoned."""
        dead, late = self._owners.not_alive(self._database.read("owners_at_work"), at_us)
        return {"namespace": self.namespace, "at_us": at_us, "dead": dead, "late": late}

    # -- journals ------------------------------------------------------------------------------

    def load(self, row: RunRow, skips: Sequence[tuple[int, int]] = ()) -> builtins.list[Entry]:
        with lookups.unless_removed(self.by_number, row.run_no):
            return journal_reader.load(self._database.read, row, skips)

    def entry(self, run_no: int, seq: int) -> Entry | None:
        row = self.by_number(run_no)
        if row is None:
            return None
        try:
            with lookups.unless_removed(self.by_number, run_no):
                return journal_reader.entry(self._database.read, row, seq)
        except RunDeleted:
            return None

    def chunks(self, run_no: int, number: int) -> Mapping[int, bytes]:
        with lookups.unless_removed(self.by_number, run_no):
            return journal_reader.chunks(self._database.read, run_no, number)

    def key(self, effect: str, key: str) -> KeyState | None:
        return lookups.find_key(self._database.read, self.namespace, effect, key)

    # -- messages ------------------------------------------------------------------------------

    def post(self, run_id: str, message: Message, etag: str | None = None) -> Posted:
        def work(tx: Transaction) -> Posted:
            # A transaction that removes the run takes the same lock, so the run exists until the
            # commit.
            tx.lock(changes.inbox_lock(self.namespace, run_id))
            row = lookups.find_run(tx.fetch, self.namespace, run_id)
            if row is None:
                raise RunNotFound(run_id, f"namespace {self.namespace!r}")
            if etag is not None:
                row = tx.locked_run(self.namespace, run_id) or row
            known = lookups.find_message(tx.fetch, row.run_no, message.message_id)
            if known is not None:
                if not tx.tries or not _is_same(known.message(), message):
                    return Posted.DUPLICATE
                # By an earlier try, which may not be on the replicas yet. A lock is a write, so its
                # commit waits until the replicas have both.
                tx.lock_row("lock_message", (row.run_no, message.message_id))
                tx.changed()
                return Posted.ACCEPTED
            claim_rules.check_etag(row, etag)
            if not changes.takes_messages(row):
                return Posted.REFUSED
            number = lookups.newest_number(tx.fetch, row.run_no) + 1
            posted = changes.posted(row.run_no, number, message)
            tx.change("add_message", row_codec.message_values(posted))
            tx.changed(posted.digest)
            return Posted.ACCEPTED

        return self._writer.transact(work)

    def messages(self, run_no: int) -> builtins.list[tuple[Message, int | None]]:
        rows = lookups.messages(self._database.read, run_no)
        return [(row.message(), row.taken_seq) for row in rows]

    def message(self, run_no: int, message_id: str) -> tuple[Message, int | None] | None:
        row = lookups.find_message(self._database.read, run_no, message_id)
        return None if row is None else (row.message(), row.taken_seq)

    def inbox(self, run_no: int, after: int = 0) -> builtins.list[Message]:
        rows = lookups.messages_since(self._database.read, run_no, after)
        return [row.message() for row in rows if row.taken_seq is None]

    def news(self, run_nos: Sequence[int]) -> dict[int, int]:
        return dict(self._database.read("news", ([*run_nos],))) if run_nos else {}

    # -- questions -----------------------------------------------------------------------------

    def questions(self, run_id: str | None = None, limit: int = 1000) -> builtins.list[Question]:
        self._database.check_index("hidden_questions")
        if run_id is not None:
            row = self.get(run_id)
            if row is None:
                return []
            found = self._database.read("questions_of_run", (row.run_no,))[:limit]
            return [side_rows.question_of(values, run_id) for values in found]
        values = {"namespace": self.namespace, "limit": limit}
        found = self._database.read("open_questions", values)
        if not found:
            return []
        names = self._run_ids({values[0] for values in found})
        return [side_rows.question_of(values, names[values[0]]) for values in found]

    def _run_ids(self, run_nos: set[int]) -> dict[int, str]:
        """Return the ids of the runs with these numbers."""
        rows = map(row_codec.run_row, self._database.read("runs_by_numbers", (sorted(run_nos),)))
        names = {row.run_no: row.run_id for row in rows}
        for run_no in run_nos - names.keys():
            raise Corrupt(f"a question of run number {run_no}", why="there is no such run")
        return names

    # -- accounts ------------------------------------------------------------------------------

    def account(self, root: str) -> Account | None:
        return side_rows.find_account(self._database.read, self.namespace, root)

    def put_account(self, account: Account, *, only_new: bool = False) -> Account:
        at = (self.namespace, account.root)

        def work(tx: Transaction) -> Account:
            tx.lock(("account", *at))  # There may be no row to lock yet.
            tx.lock_row("lock_account", at)
            before = side_rows.find_account(tx.fetch, *at)
            if before is not None and only_new:
                return before
            made = changes.new_limits(account, before)
            values = side_rows.account_values(self.namespace, made)
            tx.change("put_account", values)
            tx.changed(values[-2])
            return msgspec.structs.replace(made)

        return self._writer.transact(work)

    # -- memories ------------------------------------------------------------------------------

    def memo(self, space: str, key: str) -> Memo | None:
        found = side_rows.find_memo(self._database.read, self.namespace, space, key)
        return found if changes.is_there(found, self.now_us()) else None

    def memos(
        self, space: str, prefix: str = "", after: str = "", limit: int = 100
    ) -> builtins.list[Memo]:
        self._database.check_index("hidden_memos")
        now_us, size = self.now_us(), max(limit, PAGE)
        values = {
            "namespace": self.namespace,
            "space": space,
            "prefix": prefix,
            "end": row_codec.end_of_prefix(prefix),
            "limit": size,
        }
        memos: builtins.list[Memo] = []
        while len(memos) < limit:
            found = self._database.read("list_memos", {**values, "after": after})
            page = [side_rows.memo_of(row) for row in found]
            # Skip removed values here, after their rows are verified.
            memos += [memo for memo in page if changes.is_there(memo, now_us)]
            if len(page) < size:
                break
            after = page[-1].key
        return memos[:limit]

    def spaces(self) -> builtins.list[str]:
        return sorted(str(space) for (space,) in self._database.read("spaces", (self.namespace,)))

    def put_memo(self, memo: Memo, expected: int | None = None) -> Memo | None:
        tried: builtins.list[Memo] = []

        def work(tx: Transaction) -> Memo | None:
            tx.lock(changes.memo_lock(self.namespace, memo))
            before = self._memo_before(tx, memo)
            if tx.tries and before is not None and before in tried:
                return self._kept(tx, before)
            now_us = self.now_us()
            if expected not in (None, changes.current_version(before, now_us)):
                return None
            tried.append(changes.next_memo(memo, before, now_us))
            self._write_memo(tx, tried[-1])
            return tried[-1]

        return self._writer.transact(work)

    def put_memos(self, memos: Sequence[Memo], expected: Sequence[Memo] = ()) -> bool:
        tried: builtins.list[Memo] = []

        def work(tx: Transaction) -> bool:
            tx.lock(*{changes.memo_lock(self.namespace, memo) for memo in (*memos, *expected)})
            now_us = self.now_us()
            if tx.tries and tried and (before := self._memo_before(tx, memos[0])) in tried:
                assert before is not None
                self._kept(tx, before)
                return True
            for memo in expected:
                if changes.current_version(self._memo_before(tx, memo), now_us) != memo.expected:
                    return False
            for memo in memos:
                made = changes.next_memo(memo, self._memo_before(tx, memo), now_us)
                if memo is memos[0]:
                    tried.append(made)
                self._write_memo(tx, made)
            return True

        return self._writer.transact(work) if memos or expected else True

    def _memo_before(self, tx: Transaction, memo: Memo) -> Memo | None:
        return side_rows.find_memo(tx.fetch, self.namespace, memo.space, memo.key)

    def _write_memo(self, tx: Transaction, memo: Memo) -> None:
        values = side_rows.memo_values(self.namespace, memo)
        tx.change("put_memo", values)
        tx.changed(values[-2])

    def _kept(self, tx: Transaction, memo: Memo) -> Memo:
        """Return the value that an earlier try has written."""
        tx.lock_row("lock_memo", (self.namespace, memo.space, memo.key))
        tx.changed()
        return memo

    def expired_memos(self, space: str | None = None, limit: int = 500) -> builtins.list[Memo]:
        values: dict[str, object] = {
            "namespace": self.namespace,
            "at_us": self.now_us(),
            "limit": limit,
        }
        if space is None:
            found = self._database.read("expired_memos", values)
        else:
            found = self._database.read("expired_memos_of_space", {**values, "space": space})
        return [side_rows.memo_of(row) for row in found]

    def drop_memos(self, before_us: int) -> int:
        def work(tx: Transaction) -> int:
            found = tx.fetch("stale_memos", (self.namespace, before_us, DROPPED_AT_ONCE))
            memos = [side_rows.memo_of(row) for row in found]  # A damaged row is not removed.
            names = [(self.namespace, memo.space, memo.key) for memo in memos]
            tx.change_all([("remove_memo", name) for name in names])
            return len(memos)

        return self._writer.beside(work)

    # -- measures ------------------------------------------------------------------------------

    def put_measures(self, measures: Sequence[Measure]) -> None:
        ordered = measure_rows.in_order(measures)
        rows = [measure_rows.measure_values(self.namespace, measure) for measure in ordered]

        def work(tx: Transaction) -> None:
            tx.change_all([("put_measure", values) for values in rows])

        if rows:
            self._writer.beside(work)

    def measures(self, after_us: int, before_us: int, limit: int = 100_000) -> Measured:
        values = (self.namespace, after_us, before_us, limit)
        return measure_rows.measured(self._database.read("measures", values))

    def drop_measures(self, before_us: int) -> int:
        values = (self.namespace, before_us, measure_rows.DROPPED_AT_ONCE)
        return self._writer.beside(lambda tx: int(tx.change("drop_measures", values)))

    # -- owners --------------------------------------------------------------------------------

    def register_owner(self) -> int:
        return self._owners.register()

    def owner_name(self, owner: int | None) -> str:
        return self._owners.name(owner)

    def owner_is_dead(self, owner: int) -> bool:
        return self._owners.is_dead(owner)

    def pulses(self) -> builtins.list[Pulse]:
        return [
            Pulse(owner, self.owner_name(owner), until_us, facts)
            for owner, until_us, facts in self._database.read("pulses_after", (self.now_us(),))
            if not self.owner_is_dead(owner)
        ]

    def heard_us(self, owner: int) -> int:
        return max(0, self._owners.pulse_until_us(owner) - self._lease_us())

    def _lease_us(self) -> int:
        return int(self.lease_s * 1_000_000)

    def _lease_until_us(self) -> int:
        return self.now_us() + self._lease_us()

    # -- queues and schedules ------------------------------------------------------------------

    def set_limits(self, limits: Limits) -> None:
        values = fleet_rows.limits_values(self.namespace, limits)

        def work(tx: Transaction) -> None:
            tx.change("put_limits", values)
            tx.changed(values[-1])

        self._writer.transact(work)

    def queues(self, *, counted: bool = True) -> builtins.list[QueueState]:
        limits = fleet_rows.limits_in(self._database.read, self.namespace)
        states = {name: QueueState(known) for name, known in limits.items()}
        values = {**self._left(self.now_us()), "lease_us": self._lease_us()}
        for name, *counts in self._database.read("queue_counts", values) if counted else ():
            known = limits.get(fleet_rows.queue_name(name)) or Limits(name)
            states[name] = QueueState(known, *counts)
        return [states[name] for name in sorted(states)]

    def put_schedule(self, row: ScheduleRow, expected_cursor_us: int | None) -> bool:
        values = fleet_rows.schedule_values(self.namespace, row)

        def work(tx: Transaction) -> bool:
            tx.lock(("schedule", self.namespace, row.name))
            here = fleet_rows.schedule_in(tx.fetch, self.namespace, row.name)
            if tx.tries and here == row:
                return True  # By an earlier try.
            if (None if here is None else here.cursor_us) != expected_cursor_us:
                return False
            tx.change("put_schedule", values)
            tx.changed(values[-1])
            return True

        return self._writer.transact(work)

    def schedules(self) -> builtins.list[ScheduleRow]:
        return fleet_rows.schedules_in(self._database.read, self.namespace)

    # -- the store as a whole ------------------------------------------------------------------

    @abstractmethod
    def regression(self) -> str | None: ...

    def verify(
        self, run_ids: Iterable[str] | None = None, progress: Progress = no_progress
    ) -> builtins.list[Damage]:
        def work(state: Snapshot) -> builtins.list[Damage]:
            lost = state.lost or self.regression()
            return verify(state, self.namespace, run_ids, lost)

        return self._database.snapshot(work, progress)

    # -- whole runs ----------------------------------------------------------------------------

    def whole(self, row: RunRow) -> WholeRun:
        def work(read: lookups.Fetch) -> WholeRun:
            asked = read("questions_of_run", (row.run_no,))
            return WholeRun(
                row,
                journal_reader.load(read, row, ()),
                journal_reader.all_chunks(read, row.run_no),
                [row_codec.key_state(values) for values in read("keys_of_run", (row.run_no,))],
                [(it.message(), it.taken_seq) for it in lookups.messages(read, row.run_no)],
                [side_rows.question_of(values, row.run_id) for values in asked],
                side_rows.find_account(read, self.namespace, row.run_id),
            )

        with lookups.unless_removed(self.by_number, row.run_no):
            return self._database.in_one_state(work)

    def put_whole(self, run: WholeRun) -> bool:
        numbers: builtins.list[int] = []

        def work(tx: Transaction) -> bool:
            here = lookups.find_run(tx.fetch, self.namespace, run.row.run_id)
            if here is not None:
                claim_rules.check_same_run(here, run.row)
                return bool(tx.tries and here.run_no in numbers)
            if not numbers:
                numbers.extend(tx.run_numbers(1))
            row = claim_rules.arrived(run.row, self.namespace, numbers[0])
            keep_origins(tx, self.namespace, [row])
            if not tx.add_run(Applied(run.entries, row), builtins.list(run.chunks.items())):
                raise RunConflict(row.run_id, "by another process, just now")
            self._add_keys(tx, run.keys, row)
            tx.change_all(
                [
                    *_messages_of(run, row),
                    *(
                        ("put_question", side_rows.question_values(row.run_no, question))
                        for question in run.questions
                    ),
                ]
            )
            if run.account is not None:
                tx.change("add_account", side_rows.account_values(self.namespace, run.account))
            tx.changed(row.digest)
            return True

        return self._writer.transact(work)

    def _add_keys(self, tx: Transaction, keys: Sequence[KeyState], row: RunRow) -> None:
        tx.lock(*((self.namespace, state.effect, state.key) for state in keys))
        for state in keys:
            here = lookups.find_key(tx.fetch, self.namespace, state.effect, state.key)
            if here is not None:
                raise RunConflict(row.run_id, claim_rules.key_is_here(state, here))
            tx.change("put_key", row_codec.key_values(claim_rules.arrived_key(state, row)))

    def forget(self, row: RunRow, at_us: int) -> bool:
        left = claim_rules.deleted(row, at_us)

        def work(tx: Transaction) -> bool:
            tx.lock(changes.inbox_lock(self.namespace, row.run_id))
            now = tx.locked_run(self.namespace, row.run_id)
            if now is not None and tx.tries and now.digest == left.digest:
                return True  # By an earlier try.
            if now is None or now.digest != row.digest or now.status not in ENDED:
                return False
            if tx.fetch("fork_of", (self.namespace, *lineage.written_by_forks(row.run_id))):
                return False
            tx.put_run(now, Applied([], left))
            at = (row.run_no,)
            tx.change_all(
                [
                    ("remove_entries", at),
                    ("remove_chunks", at),
                    ("remove_messages", at),
                    ("remove_keys", at),
                    ("close_questions", at),
                    ("remove_account", (self.namespace, row.run_id)),
                ]
            )
            tx.changed(left.digest)
            return True

        return self._writer.transact(work)


def keep_origins(
    tx: Transaction, namespace: str, rows: Iterable[RunRow], etags: Sequence[str | None] = ()
) -> None:
    """Lock the origins of these forks until the commit; raise if one was deleted or has another
    etag, and the fork does not exist yet.

    A transaction that removes a run locks the name of its inbox too, and then searches for forks:
    so one of the two transactions sees the other's changes.
    """
    views = itertools.chain(etags, itertools.repeat(None))
    forked = [
        (row, of.run, view)
        for row, view in zip(rows, views, strict=False)
        if (of := lineage.origin_of(row)) is not None
    ]
    if not forked:
        return
    tx.lock(*{changes.inbox_lock(namespace, origin) for _, origin, _ in forked})
    find = functools.partial(lookups.find_run, tx.fetch, namespace)
    for row, origin, view in forked:
        if find(row.run_id) is not None:
            continue
        other = None if view is None else find(origin)
        if other is not None:  # From here on it cannot change.
            tx.lock_row("lock_run", (other.run_no,))
        lineage.check_origin(row, find, view)


def _claimed(row: RunRow) -> Lease | Busy:
    if row.status in CLAIMABLE:
        return Lease(row)
    return Busy(row, claim_rules.refusal(row, "nobody"))


def _messages_of(run: WholeRun, row: RunRow) -> Iterable[tuple[str, tuple[object, ...]]]:
    for number, (message, taken_seq) in enumerate(run.messages, 1):
        posted = changes.posted(row.run_no, number, message)
        posted.taken_seq = taken_seq
        yield "add_message", row_codec.message_values(posted.sealed())


def _is_same(one: Message, other: Message) -> bool:
    return (one.kind, one.actor, one.at_us, one.body) == (
        other.kind,
        other.actor,
        other.at_us,
        other.body,
    )


def _is_filtered(query: Query) -> bool:
    chosen = (
        query.status,
        query.flow,
        query.version,
        query.tag,
        query.run_id_prefix,
        query.run_id_part,
        query.updated_before_us,
        query.updated_after_us,
        query.queue,
        query.held_reason,
        query.parent,
    )
    return query.forks or any(part is not None for part in chosen)
