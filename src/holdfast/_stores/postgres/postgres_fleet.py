"""What a fleet shares on a server: pulses, queues, schedules, whole runs, and users' transactions."""

from __future__ import annotations

import builtins
import random
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import psycopg

from holdfast._engine.journal.changes import posted as posted_row
from holdfast._engine.journal.rows import Applied, KeyState, Lease, Pot, Question, RunRow, Write
from holdfast._stores import claim_rules, journal_reader, lookups, row_codec, side_rows
from holdfast._stores.contract import (
    Broken,
    Fenced,
    Limits,
    Outcome,
    Pulse,
    QueueState,
    ScheduleRow,
    Wanted,
    WholeRun,
)
from holdfast._stores.lookups import Fetch
from holdfast._stores.postgres import postgres_open, row_statement
from holdfast._stores.postgres.fork_origins import keep_origins
from holdfast._stores.postgres.postgres_errors import LinkLost, passes
from holdfast._stores.postgres.postgres_queries import fetch_with
from holdfast._stores.postgres.postgres_side_tables import message_values
from holdfast._stores.postgres.postgres_user_connection import USERS_PATIENCE_S, lent
from holdfast._stores.postgres.server_connection import Link, idle_ms
from holdfast.errors import RunConflict

if TYPE_CHECKING:
    from holdfast._stores.postgres.acknowledged_heads import Remembered
    from holdfast._stores.postgres.listen import Notices
    from holdfast._stores.postgres.postgres_append import Appender, Batch
    from holdfast._stores.postgres.postgres_claims import Claimer
    from holdfast._stores.postgres.postgres_database import Database
    from holdfast._stores.postgres.postgres_owners import Owners
    from holdfast._stores.store_clock import DatabaseClock

    T = TypeVar("T")

TRIES = 3
"""How often a user's transaction is done at most, if a deadlock or a lost connection ended it."""


class PostgresFleet:
    """The part of the store that concerns more than one run or one process."""

    if TYPE_CHECKING:
        namespace: str
        lease_s: float
        _adopted_through: int
        _server_us: int
        _appender: Appender
        _claimer: Claimer
        _clock: DatabaseClock
        _database: Database
        _fetch: Fetch
        _notices: Notices
        _owners: Owners
        _remembered: Remembered

        def now_us(self) -> int: ...
        def _lease_until_us(self) -> int: ...
        def _tell(self) -> None: ...
        def by_number(self, run_no: int) -> RunRow | None: ...
        def _one_state(self, work: Callable[[Fetch], T]) -> T: ...
        def questions(
            self, run_id: str | None = None, limit: int = 1000
        ) -> builtins.list[Question]: ...
        def pot(self, root: str) -> Pot | None: ...
        def _came_back(self, link: Link) -> None: ...
        def _set_clock(self, link: Link) -> None: ...

    # -- pulses --------------------------------------------------------------------------------

    def pulse(
        self, owner: int, facts: str, working: Sequence[tuple[int, int]] = ()
    ) -> builtins.list[int]:
        def work(link: Link, _tries: int) -> builtins.list[int]:
            self._set_clock(link)
            link.change("put_pulse", (owner, self._lease_until_us(), facts))
            row = postgres_open.store_row(link)  # What another process noticed or adopted.
            if row.server_us != self._server_us:
                self._came_back(link)  # Another server, behind a pooler that kept our connection.
            else:
                self._adopted_through = row.adopted_through
                self._remembered.lost = row.lost
            if not working:
                return []
            values = ([run_no for run_no, _ in working], [epoch for _, epoch in working])
            return [run_no for (run_no,) in link.fetch("lost_runs", values)]

        return self._database.pulsing.again(work)

    def pulses(self) -> builtins.list[Pulse]:
        return self._owners.pulses()

    def heard_us(self, owner: int) -> int:
        return max(0, self._owners.pulse_until_us(owner) - int(self.lease_s * 1e6))

    # -- queues --------------------------------------------------------------------------------

    def take(self, wanted: Wanted) -> builtins.list[Lease]:
        taken = self._claimer.take(wanted)
        for lease in taken:
            self._remembered.acknowledged(lease.row)
            self._clock.not_before(lease.row.updated_us)
        return taken

    def set_limits(self, limits: Limits) -> None:
        values = (self.namespace, *msgspec.structs.astuple(limits))

        def work(link: Link, _tries: int) -> None:
            with link.writing():
                link.change("put_limits", values)

        self._database.work(work)
        self._tell()

    def queues(self) -> builtins.list[QueueState]:
        states = {limits.queue: QueueState(limits) for limits in self._claimer.limits()}
        at_us = self.now_us()
        dead, late = self._owners.not_alive(self._database.read("owners_of_open_runs"), at_us)
        values = {
            "namespace": self.namespace,
            "at_us": at_us,
            "owners": [*dead, *late],
            "late": late,
            "lease_us": int(self.lease_s * 1e6),
        }
        for name, *counts in self._database.read("queue_counts", values):
            known = states.get(name)
            states[name] = QueueState(known.limits if known else Limits(name), *counts)
        return [states[name] for name in sorted(states)]

    # -- schedules -----------------------------------------------------------------------------

    def put_schedule(self, row: ScheduleRow, expected_cursor_us: int | None) -> bool:
        values = {
            **msgspec.structs.asdict(row),
            "namespace": self.namespace,
            "expected": expected_cursor_us,
        }

        def work(link: Link, tries: int) -> bool:
            with link.writing():
                name = "add_schedule" if expected_cursor_us is None else "move_schedule"
                changed = link.change(name, values) == 1
                if changed or not tries:
                    return changed
                found = link.fetch("schedules", (self.namespace,))
                return row in [ScheduleRow(*known) for known in found]  # Of an earlier try.

        return self._database.work(work)

    def schedules(self) -> builtins.list[ScheduleRow]:
        found = self._database.read("schedules", (self.namespace,))
        return [ScheduleRow(*values) for values in found]

    # -- a user's transaction ------------------------------------------------------------------

    def append_within(self, lease: Lease, work: Callable[[Any], Write]) -> Outcome:
        for left in reversed(range(TRIES)):
            try:
                return self._within(lease, work)
            except BaseException as error:
                if not left or not passes(error):
                    if isinstance(error, LinkLost):
                        raise self._database.translated(error) from error
                    raise
            time.sleep(random.uniform(0.05, 0.2))  # noqa: S311
        raise AssertionError

    def _within(self, lease: Lease, work: Callable[[Any], Write]) -> Outcome:
        """Everything in one transaction. It is never tried again by itself after its connection
        broke: if the commit is not found, nothing of it has happened, and the caller is told."""
        database = self._database
        batch: Batch | None = None
        link: Link | None = None
        try:
            with database.pool().connection(timeout=database.patience_s) as link:
                link.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                batch = self._appender.batch(link)
                with link.transaction():
                    if not self._write_within(link, batch, lease, work):
                        return Fenced()
        except _Refused:
            pass
        except psycopg.OperationalError as error:
            if batch is None or not self._was_committed(batch):
                raise database.translated(error) from error
        except Exception as error:
            if link is not None and (link.closed or link.broken):
                raise LinkLost("the connection broke inside a user's transaction") from error
            raise
        assert batch is not None
        outcome = self._appender.concluded(batch)[0]
        if isinstance(outcome, Broken):
            raise outcome.error
        return outcome

    def _write_within(
        self, link: Link, batch: Batch, lease: Lease, work: Callable[[Any], Write]
    ) -> bool:
        """Do what the user wants and what the run wants; False if the run is somebody else's."""
        link.fetch("commit_for_good", (idle_ms(USERS_PATIENCE_S),))
        began = link.fetch("transaction_id")
        row = lease.row
        if not link.fetch("run_stands", _guard(row)):
            return False
        with lent(link, began, row.run_id):
            write = work(link)
        batch.lock_names(link, [write])
        batch.look(link, [write])
        batch.work_out([write])
        batch.send(link)
        if not batch.leases():
            raise _Refused
        batch.send_rest(link)
        return True

    def _was_committed(self, batch: Batch) -> bool:
        def work(link: Link, _tries: int) -> bool:
            with link.writing():
                found: bool = batch.was_committed(link)
                return found

        return self._database.appending.again(work)

    # -- whole runs ----------------------------------------------------------------------------

    def whole(self, row: RunRow) -> WholeRun:
        def read(fetch: Fetch) -> WholeRun:
            values = {"namespace": self.namespace, "run_id": row.run_id, "limit": None}
            asked = fetch("questions", values)
            return WholeRun(
                row,
                journal_reader.load(fetch, row, ()),
                journal_reader.all_chunks(fetch, row.run_no),
                [row_codec.key_state(values) for values in fetch("keys_of_run", (row.run_no,))],
                [(it.message(), it.taken_seq) for it in lookups.messages(fetch, row.run_no)],
                [side_rows.question_of(values[1:], values[0]) for values in asked],
                side_rows.find_pot(fetch, self.namespace, row.run_id),
            )

        with lookups.unless_removed(self.by_number, row.run_no):
            return self._one_state(read)

    def put_whole(self, run: WholeRun) -> bool:
        numbers: list[int] = []

        def work(link: Link, tries: int) -> bool:
            with link.writing():
                here = lookups.find_run(fetch_with(link), self.namespace, run.row.run_id)
                if here is not None:
                    claim_rules.check_same_run(here, run.row)
                    return bool(tries and here.run_no in numbers)
                if not numbers:
                    numbers.append(link.fetch("run_numbers", (1,))[0][0])
                row = claim_rules.arrived(run.row, self.namespace, numbers[0])
                keep_origins(link, self.namespace, [row])
                chunks = [(row.run_no, number, body) for number, body in run.chunks.items()]
                made = Applied(list(run.entries), row)
                if not row_statement.start(link, [made], chunks):
                    raise RunConflict(row.run_id, "by another process, just now")
                self._put_keys(link, run.keys, row)
                for number, (message, taken_seq) in enumerate(run.messages, 1):
                    posted = posted_row(row.run_no, number, message)
                    posted.taken_seq = taken_seq
                    link.change("add_message", message_values(posted.sealed()))
                for question in run.questions:
                    values = side_rows.question_values(row.run_no, question)
                    link.change("put_question", values)
                if run.pot is not None:
                    link.change("add_pot", side_rows.pot_values(self.namespace, run.pot))
            return True

        is_new = self._database.work(work)
        self._tell()
        return is_new

    def _put_keys(self, link: Link, keys: Sequence[KeyState], row: RunRow) -> None:
        for state in keys:
            hashed = row_codec.name_hash(self.namespace, state.effect, state.key)
            link.fetch("lock_names", ([hashed],))
            here = lookups.find_key(fetch_with(link), self.namespace, state.effect, state.key)
            if here is not None:
                raise RunConflict(row.run_id, claim_rules.key_is_here(state, here))
            link.change("put_key", row_codec.key_values(claim_rules.arrived_key(state, row)))


class _Refused(Exception):
    """Rolls a user's transaction back: the write that belongs to it was refused."""


def _guard(row: RunRow) -> tuple[Any, ...]:
    return (row.run_no, row.epoch, row.last_seq, row.digest)
