"""The store in one SQLite file, for any number of processes on one machine.

SqlStore ── SqliteStore ─┬─ Database    connections: one writes, a few read; none crosses a fork
                         ├─ Writer      transactions: counter, chained head, clock, witness
                         ├─ Appender    appends a batch: fence, entries, chunks, side tables
                         ├─ Owners      liveness of processes
                         └─ Watch       wake-up on commits
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast._engine.journal.rows import Lease, Write
from holdfast._stores import claim_rules, lookups, queue_limits
from holdfast._stores.contract import (
    NewRun,
    Outcome,
    Progress,
    Started,
    Wanted,
    no_progress,
)
from holdfast._stores.sql.sql_store import SqlStore, keep_origins
from holdfast._stores.sqlite import filesystem, migrations, sqlite_open
from holdfast._stores.sqlite.file_watch import Watch
from holdfast._stores.sqlite.owner_locks import Locks, Owners
from holdfast._stores.sqlite.sqlite_append import Appender
from holdfast._stores.sqlite.sqlite_claims import Taking
from holdfast._stores.sqlite.sqlite_database import Database
from holdfast._stores.sqlite.transaction_writer import Reserve, Transaction, Writer
from holdfast._stores.sqlite.witness_file import Witness
from holdfast._stores.store_clock import StoreClock
from holdfast._stores.temporary_folders import TemporaryFolder

FORGOTTEN_AFTER_US = 3_600_000_000
"""How long an expired pulse is kept."""


class SqliteStore(SqlStore[Database, Writer, Owners]):
    """One process's handle on a store in a file."""

    def __init__(
        self,
        path: str,
        *,
        namespace: str = "default",
        clock: Callable[[], int] | None = None,
        page_size: int = 8192,
        read_only: bool = False,
        lease_s: float = 30.0,
        force_fs: bool = False,
        temporary: TemporaryFolder | None = None,
    ) -> None:
        self.namespace = namespace
        self.lease_s = lease_s
        self._temporary = temporary
        kind = self._place(path, read_only=read_only, force_fs=force_fs)
        durable = temporary is None
        self._database = Database(
            self.path, read_only=read_only, page_size=page_size, durable=durable
        )
        self._witness = Witness(f"{self.path}-witness", read_only=read_only, durable=durable)
        try:
            opened = sqlite_open.open_rows(self._database, self._witness, read_only=read_only)
        except BaseException:
            self._witness.close()
            self._database.close()
            self._end_temporary()
            raise
        self.store_id = opened.row.store_id
        self._writer = Writer(self._database, self._witness, StoreClock(clock), read_only=read_only)
        self.now_us = self._writer.now_us
        self._writer.take_up(opened.row)
        self._writer.follow_clock()
        self._writer.regression = opened.regression
        self._locks = Locks(f"{self.path}-owners.lock", trusted=kind not in filesystem.NETWORK)
        self._owners = Owners(self._writer, self._locks)
        self._watch = Watch(self._witness.path, self._witness.read)
        reserve = Reserve(f"{self.path}-reserve")
        if durable and not read_only:
            reserve.fill()
        self._appender = Appender(
            self._writer, reserve, self._owners.is_dead, self._lease_us(), namespace
        )

    def _place(self, path: str, *, read_only: bool, force_fs: bool) -> str:
        """Check or create the file; return the type of its file system."""
        if self._temporary is not None:
            self._temporary.hold()
            self.path, self.url = self._temporary.file, "memory:"
            sqlite_open.copy_template(self.path)
            return ""
        self.path = filesystem.resolved(path)
        self.url = f"sqlite:///{self.path}"
        kind = filesystem.check_file_system(self.path, force=force_fs)
        sqlite_open.check_path(self.path, read_only=read_only)
        return kind

    def _end_temporary(self) -> None:
        folder, self._temporary = self._temporary, None
        if folder is not None:
            folder.release()

    # -- the store as a whole ------------------------------------------------------------------

    def regression(self) -> str | None:
        return self._writer.regression

    def schema_version(self) -> int:
        with self._database.reader() as connection:
            return migrations.version_of(connection, self.path)

    def accepted_through(self) -> int:
        return self._writer.row.accepted_through

    def accept_data_loss(self, actor: str) -> str:
        accepted = self.regression() or "nothing was missing"
        self._writer.accept_data_loss(actor, accepted)
        return accepted

    def wait_for_change(self, timeout_s: float) -> bool:
        return self._watch.wait(timeout_s)

    def backup(self, path: str, progress: Progress = no_progress) -> None:
        from holdfast._stores.sqlite.backups import backup

        backup(self._database, path, progress)

    def close(self, *, at_work: bool = False) -> None:
        self._watch.close()
        self._database.close()
        if at_work:
            self._locks.keep()
        else:
            self._locks.close()
        self._witness.close()
        self._end_temporary()

    # -- writes --------------------------------------------------------------------------------

    def append(self, writes: Sequence[Write]) -> builtins.list[Outcome]:
        return self._appender.append(writes)

    def append_within(self, lease: Lease, work: Callable[[Any], Write]) -> Outcome:
        return self._appender.within(lease, work)

    def start_all(self, news: Sequence[tuple[NewRun, int | None]]) -> builtins.list[Started]:
        return self._writer.transact(lambda tx: [self._started(tx, *each) for each in news])

    def _started(self, tx: Transaction, new: NewRun, owner: int | None) -> Started:
        existing = lookups.find_run(tx.fetch, self.namespace, new.run_id)
        if existing is not None:
            return Started(existing, created=False)
        (run_no,) = tx.run_numbers(1)
        until_us = self._lease_until_us()
        made = claim_rules.new_run(new, self.namespace, run_no, owner, until_us)
        keep_origins(tx, self.namespace, [made.row], [new.origin_etag])
        tx.add_run(made, new.chunks)
        tx.changed(made.row.digest)
        lease = None if owner is None else Lease(msgspec.structs.replace(made.row))
        return Started(made.row, created=True, lease=lease, entries=made.entries)

    def take(self, wanted: Wanted) -> builtins.list[Lease]:
        self._database.check_index("hidden_run")

        def work(tx: Transaction) -> builtins.list[Lease]:
            wanted.passed_over, wanted.quarantined = False, []
            taking = Taking(tx, self._owners, self.namespace, self._lease_until_us(), wanted)
            return queue_limits.in_turns(taking.queues(), wanted.limit, taking.take_from)

        return self._writer.transact(work)

    def pulse(
        self, owner: int, facts: str, working: Sequence[tuple[int, int]] = ()
    ) -> builtins.list[int]:
        now_us = self.now_us()

        def work(tx: Transaction) -> None:
            tx.change("put_pulse", (owner, now_us + self._lease_us(), facts))
            tx.change("forget_pulses", (now_us - FORGOTTEN_AFTER_US,))

        self._writer.beside(work)
        if not working:
            return []
        numbers = [run_no for run_no, _ in working]
        epochs = dict(self._database.read("epochs", (numbers,)))
        return [run_no for run_no, epoch in working if epochs.get(run_no) != epoch]
