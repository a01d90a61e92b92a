"""What a fleet shares, in SQLite: pulses, queues with limits, schedules, whole runs, and users'
transactions."""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._engine.journal.changes import posted as posted_row
from holdfast._engine.journal.rows import Applied, Lease, Pot, Question, RunRow, Write
from holdfast._stores import (
    claim_rules,
    fleet_rows,
    journal_reader,
    lineage,
    lookups,
    queue_limits,
    row_codec,
    side_rows,
)
from holdfast._stores.contract import (
    Limits,
    Outcome,
    Pulse,
    QueueState,
    ScheduleRow,
    Wanted,
    WholeRun,
)
from holdfast._stores.sqlite.apsw_types import Connection
from holdfast._stores.sqlite.sqlite_claims import Taking
from holdfast._stores.sqlite.sqlite_database import Q
from holdfast._stores.sqlite.transaction_writer import Changed
from holdfast.errors import RunConflict

if TYPE_CHECKING:
    from holdfast._stores.sqlite.sqlite_append import Appender
    from holdfast._stores.sqlite.sqlite_database import Database
    from holdfast._stores.sqlite.transaction_writer import Writer

FORGOTTEN_AFTER_US = 3_600_000_000
"""How long a pulse that ran out is kept."""


class SqliteFleet:
    """The part of a SQLite store that concerns more than one run or one process."""

    if TYPE_CHECKING:
        namespace: str
        lease_s: float
        _writer: Writer
        _database: Database
        _appender: Appender

        now_us: Callable[[], int]

        def by_number(self, run_no: int) -> RunRow | None: ...
        def owner_is_dead(self, owner: int) -> bool: ...
        def dead_at_work(self) -> builtins.list[int]: ...
        def owner_name(self, owner: int | None) -> str: ...
        def questions(
            self, run_id: str | None = None, limit: int = 1000
        ) -> builtins.list[Question]: ...
        def pot(self, root: str) -> Pot | None: ...
        def _lease_us(self) -> int: ...
        def _inside(self, connection: Connection) -> lookups.Fetch: ...
        def _compare(self, name: str) -> None: ...
        def claimed(
            self, connection: Connection, row: RunRow, owner: int, at_us: int
        ) -> RunRow | None: ...
        def put(self, connection: Connection, row: RunRow, write: Write) -> RunRow: ...
        def _add(
            self, connection: Connection, made: Applied, chunks: Sequence[tuple[int, bytes]]
        ) -> None: ...

    # -- pulses --------------------------------------------------------------------------------

    def pulse(
        self, owner: int, facts: str, working: Sequence[tuple[int, int]] = ()
    ) -> builtins.list[int]:
        now_us = self.now_us()

        def work(connection: Connection) -> None:
            connection.execute(Q["put_pulse"], (owner, now_us + self._lease_us(), facts))
            connection.execute(Q["forget_pulses"], (now_us - FORGOTTEN_AFTER_US,))

        self._writer.beside(work)
        if not working:
            return []
        numbers = _json([run_no for run_no, _ in working])
        epochs = dict(self._database.read("epochs", (numbers,)))
        return [run_no for run_no, epoch in working if epochs.get(run_no) != epoch]

    def pulses(self) -> builtins.list[Pulse]:
        return [
            Pulse(owner, self.owner_name(owner), until_us, facts)
            for owner, until_us, facts in self._database.read("pulses_after", (self.now_us(),))
            if not self.owner_is_dead(owner)
        ]

    def heard_us(self, owner: int) -> int:
        found = self._database.read("pulse_of", (owner,))
        return max(0, found[0][0] - int(self.lease_s * 1e6)) if found else 0

    def pulse_until_us(self, connection: Connection, owner: int) -> int:
        """Say, inside a transaction, until when an owner is sure to live."""
        found = self._database.fetch(connection, "pulse_of", (owner,))
        return found[0][0] if found else 0

    # -- queues --------------------------------------------------------------------------------

    def take(self, wanted: Wanted) -> builtins.list[Lease]:
        self._compare("hidden_run")

        def work(connection: Connection) -> tuple[builtins.list[Lease], Changed | None]:
            wanted.passed_over, wanted.quarantined = False, []
            taking = Taking(self, connection, self._inside(connection), wanted)
            taken = queue_limits.in_turns(taking.queues(), wanted.limit, taking.take_from)
            changed = Changed(b"".join(taking.digests)) if taking.digests else None
            return taken, changed

        return self._writer.transact(work)

    def set_limits(self, limits: Limits) -> None:
        values = fleet_rows.limits_values(self.namespace, limits)

        def work(connection: Connection) -> tuple[None, Changed]:
            connection.execute(Q["put_limits"], values)
            return None, Changed(values[-1])

        self._writer.transact(work)

    def queues(self) -> builtins.list[QueueState]:
        read = self._database.read
        limits = fleet_rows.limits_in(read, self.namespace)
        states = {name: QueueState(known) for name, known in limits.items()}
        values = {
            "namespace": self.namespace,
            "at_us": self.now_us(),
            "dead": _json(self.dead_at_work()),
            "lease_us": self._lease_us(),
        }
        for name, running, ready, delayed, oldest_us, abandoned in read("open_counts", values):
            state = states.setdefault(fleet_rows.queue_name(name), QueueState(Limits(name)))
            state.running, state.abandoned = running, abandoned
            state.ready, state.delayed, state.oldest_us = ready, delayed, oldest_us
        for name, failed, held, quarantined in read("stopped_counts", (self.namespace,)):
            state = states.setdefault(fleet_rows.queue_name(name), QueueState(Limits(name)))
            state.failed, state.held, state.quarantined = failed, held, quarantined
        return [states[name] for name in sorted(states)]

    # -- schedules -----------------------------------------------------------------------------

    def put_schedule(self, row: ScheduleRow, expected_cursor_us: int | None) -> bool:
        values = fleet_rows.schedule_values(self.namespace, row)

        def work(connection: Connection) -> tuple[bool, Changed | None]:
            known = fleet_rows.schedules_in(self._inside(connection), self.namespace)
            cursors = {schedule.name: schedule.cursor_us for schedule in known}
            if cursors.get(row.name) != expected_cursor_us:
                return False, None
            connection.execute(Q["put_schedule"], values)
            return True, Changed(values[-1])

        return self._writer.transact(work)

    def schedules(self) -> builtins.list[ScheduleRow]:
        return fleet_rows.schedules_in(self._database.read, self.namespace)

    # -- transactions and whole runs -----------------------------------------------------------

    def append_within(self, lease: Lease, work: Callable[[Any], Write]) -> Outcome:
        return self._appender.within(lease, work)

    def whole(self, row: RunRow) -> WholeRun:
        gone = lookups.unless_removed(self.by_number, row.run_no)
        with gone, self._database.one_state() as read:
            asked = read("questions_of_run", (row.run_no,))
            return WholeRun(
                row,
                journal_reader.load(read, row, ()),
                journal_reader.all_chunks(read, row.run_no),
                [row_codec.key_state(values) for values in read("keys_of_run", (row.run_no,))],
                [(it.message(), it.taken_seq) for it in lookups.messages(read, row.run_no)],
                [side_rows.question_of(values, row.run_id) for values in asked],
                side_rows.find_pot(read, self.namespace, row.run_id),
            )

    def put_whole(self, run: WholeRun) -> bool:
        def work(connection: Connection) -> tuple[bool, Changed | None]:
            here = lookups.find_run(self._inside(connection), self.namespace, run.row.run_id)
            if here is not None:
                claim_rules.check_same_run(here, run.row)
                return False, None
            run_no = self._writer.row.last_run_no + 1
            row = claim_rules.arrived(run.row, self.namespace, run_no)
            lineage.check_origin(
                row, functools.partial(lookups.find_run, self._inside(connection), self.namespace)
            )
            connection.execute(Q["add_run"], row_codec.run_values(row))
            self._add(connection, Applied(run.entries, row), list(run.chunks.items()))
            self._add_keys(connection, run, row)
            for number, (message, taken_seq) in enumerate(run.messages, 1):
                posted = posted_row(run_no, number, message)
                posted.taken_seq = taken_seq
                values = msgspec.structs.astuple(posted.sealed())
                connection.execute(Q["add_message"], values)
            for question in run.questions:
                asked = side_rows.question_values(run_no, question)
                connection.execute(Q["put_question"], asked)
            if run.pot is not None:
                self._add_pot(connection, run.pot)
            return True, Changed(row.digest, {"last_run_no": run_no})

        return self._writer.transact(work)

    def _add_pot(self, connection: Connection, pot: Pot) -> None:
        if side_rows.find_pot(self._inside(connection), self.namespace, pot.root) is None:
            connection.execute(Q["put_pot"], side_rows.pot_values(self.namespace, pot))

    def _add_keys(self, connection: Connection, run: WholeRun, row: RunRow) -> None:
        fetch = self._inside(connection)
        for state in run.keys:
            here = lookups.find_key(fetch, self.namespace, state.effect, state.key)
            if here is not None:
                raise RunConflict(row.run_id, claim_rules.key_is_here(state, here))
            moved = claim_rules.arrived_key(state, row)
            connection.execute(Q["put_key"], row_codec.key_values(moved))


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()
