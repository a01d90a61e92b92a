"""The store in one SQLite file, for any number of processes on one machine.

SqliteStore ─┬─ Database    connections: one writes, a few read; none crosses a fork
             ├─ Writer      transactions: counter, chained head, clock, witness
             ├─ Appender    the append: fence, entries, chunks, keys, messages, and what is beside
             ├─ Owners      who is alive
             └─ Watch       who is told of a commit
"""

from __future__ import annotations

import builtins
import functools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast._engine.journal.entries import Entry
from holdfast._engine.journal.rows import SEQ_BITS, Applied, KeyState, Lease, RunRow, Write, apply
from holdfast._stores import claim_rules, journal_reader, lineage, lookups, row_codec
from holdfast._stores.contract import (
    Busy,
    Damage,
    NewRun,
    Outcome,
    Progress,
    Query,
    Started,
    no_progress,
)
from holdfast._stores.sqlite import filesystem, migrations, sqlite_open
from holdfast._stores.sqlite.apsw_types import Connection
from holdfast._stores.sqlite.file_watch import Watch
from holdfast._stores.sqlite.owner_locks import Locks, Owners
from holdfast._stores.sqlite.sqlite_append import Appender
from holdfast._stores.sqlite.sqlite_database import Database, Q
from holdfast._stores.sqlite.sqlite_fleet import SqliteFleet
from holdfast._stores.sqlite.sqlite_side_tables import SqliteBeside
from holdfast._stores.sqlite.transaction_writer import Changed, Reserve, Writer
from holdfast._stores.sqlite.witness_file import Witness
from holdfast._stores.store_clock import StoreClock
from holdfast._stores.temporary_folders import TemporaryFolder
from holdfast.errors import Corrupt, RunDeleted, RunNotFound

SCAN_EVERY_S = 60.0
"""How often an answer of the workers' indexes is compared with the table itself."""


class SqliteStore(SqliteFleet, SqliteBeside):
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
        self._owners = Owners(self._database, self._locks)
        self._watch = Watch(self._witness.path, self._witness.read)
        reserve = Reserve(f"{self.path}-reserve")
        if durable and not read_only:
            reserve.fill()
        self._appender = Appender(
            self._writer, reserve, self._owners.is_dead, self._lease_us(), namespace
        )
        self._scanned_s: dict[str, float] = {}

    def _place(self, path: str, *, read_only: bool, force_fs: bool) -> str:
        """Find the file, or make it; return the type of its file system."""
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

    def adopted_through(self) -> int:
        return self._writer.row.adopted_through

    def adopt(self, actor: str) -> str:
        accepted = self.regression() or "nothing was missing"
        self._writer.adopt(actor, accepted)
        return accepted

    def register_owner(self) -> int:
        return self._owners.register(self._writer)

    def owner_name(self, owner: int | None) -> str:
        return self._owners.name(owner)

    def wait_for_change(self, timeout_s: float) -> bool:
        return self._watch.wait(timeout_s)

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

    def start(self, new: NewRun, owner: int | None) -> Started:
        return self.start_all([(new, owner)])[0]

    def start_all(self, news: Sequence[tuple[NewRun, int | None]]) -> builtins.list[Started]:
        def work(connection: Connection) -> tuple[builtins.list[Started], Changed | None]:
            first = self._writer.row.last_run_no + 1
            until_us = self.now_us() + self._lease_us()
            started: builtins.list[Started] = []
            digests: builtins.list[bytes] = []
            for new, owner in news:
                existing = lookups.find_run(self._inside(connection), self.namespace, new.run_id)
                if existing is not None:
                    started.append(Started(existing, created=False))
                    continue
                run_no = first + len(digests)
                made = claim_rules.new_run(new, self.namespace, run_no, owner, until_us)
                lineage.check_origin(
                    made.row,
                    functools.partial(lookups.find_run, self._inside(connection), self.namespace),
                    new.origin_etag,
                )
                connection.execute(Q["add_run"], row_codec.run_values(made.row))
                self._add(connection, made, new.chunks)
                digests.append(made.row.digest)
                lease = None if owner is None else Lease(msgspec.structs.replace(made.row))
                started.append(Started(made.row, created=True, lease=lease, entries=made.entries))
            if not digests:
                return started, None
            numbers = {"last_run_no": first + len(digests) - 1}
            return started, Changed(b"".join(digests), numbers)

        return self._writer.transact(work)

    def claim(self, run_id: str, owner: int, at_us: int) -> Lease | Busy:
        def work(connection: Connection) -> tuple[Lease | Busy, Changed | None]:
            row = self._existing(connection, run_id)
            claimed = self.claimed(connection, row, owner, at_us)
            if claimed is None:
                return Busy(row, claim_rules.refusal(row, self.owner_name(row.owner))), None
            changed = Changed(claimed.digest)
            if claimed.owner is None:
                return Busy(claimed, claim_rules.refusal(claimed, "nobody")), changed
            return Lease(claimed), changed

        return self._writer.transact(work)

    def claimed(self, connection: Connection, row: RunRow, owner: int, at_us: int) -> RunRow | None:
        """Claim a run that was read in this transaction, or hold it where that would be one claim
        too many (then nobody owns it); None if `owner` may not have it."""
        why = claim_rules.why_claimable(
            row,
            owner,
            at_us,
            self._owners.is_dead,
            lambda other: self.pulse_until_us(connection, other),
        )
        if why is None:
            return None
        poison = claim_rules.is_poison(row)
        write = (
            claim_rules.quarantine_write(row, at_us)
            if poison
            else claim_rules.claim_write(row, owner, at_us, why)
        )
        return self.put(connection, row, write)

    def owner_is_dead(self, owner: int) -> bool:
        return self._owners.is_dead(owner)

    def _existing(self, connection: Connection, run_id: str) -> RunRow:
        row = lookups.find_run(self._inside(connection), self.namespace, run_id)
        if row is None:
            raise RunNotFound(run_id, f"namespace {self.namespace!r}")
        return row

    def put(self, connection: Connection, row: RunRow, write: Write) -> RunRow:
        """Carry out a write on a run that was read in this transaction; returns its new row."""
        applied = apply(row, write, self.now_us() + self._lease_us())
        guard = (row.run_no, row.epoch, row.last_seq, row.digest)
        connection.execute(Q["run_moved"], row_codec.moved_values(applied.row) + guard)
        assert connection.changes() == 1, "the row was read in this transaction"
        self._add(connection, applied, ())
        return applied.row

    def _add(
        self, connection: Connection, made: Applied, chunks: Sequence[tuple[int, bytes]]
    ) -> None:
        run_no = made.row.run_no
        for entry in made.entries:
            connection.execute(Q["add_entry"], row_codec.entry_values(run_no, entry))
        for number, body in chunks:
            digest = row_codec.chunk_digest(run_no, number, body)
            connection.execute(Q["add_chunk"], (run_no << SEQ_BITS | number, digest, body))

    # -- reads ---------------------------------------------------------------------------------

    def get(self, run_id: str) -> RunRow | None:
        return lookups.find_run(self._database.read, self.namespace, run_id)

    def by_number(self, run_no: int) -> RunRow | None:
        return lookups.run_by_number(self._database.read, run_no, self._writer.row.last_run_no)

    def list(self, query: Query) -> builtins.list[RunRow]:
        statuses = (
            None if query.status is None else msgspec.json.encode(list(query.status)).decode()
        )
        values = row_codec.list_values(query, self.namespace, statuses)
        if query.parent is None:
            found = self._database.read("list_runs", values)
        else:
            found = self._confirmed("list_children", values)
        rows = [row_codec.run_row_or_held(values) for values in found]
        if not _is_filtered(query):
            self._check_complete(rows, query)
        return rows

    def _check_complete(self, rows: Sequence[RunRow], query: Query) -> None:
        """Notice a run that fell out of the table: every number that was given is there."""
        last = max([self._writer.row.last_run_no, *(row.run_no for row in rows)])
        if query.before_run_no is not None:
            last = min(last, query.before_run_no - 1)
        first = rows[-1].run_no if len(rows) >= query.limit else 1
        ((count,),) = self._database.read("count_numbers", (first, last))
        if rows and count != last - first + 1:
            raise Corrupt("the table runs", why=f"a run between {first} and {last} is missing")
        for (run_no,) in self._database.read("half_removed", (first, last)):
            why = "it says that it was removed, and its journal is there"
            raise Corrupt("its row in runs", run_id=f"number {run_no}", why=why)

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

    def waiting_on(self, token: str) -> builtins.list[RunRow]:
        rows = self._confirmed("runs_waiting_on", (token, self.namespace))
        return [row_codec.run_row(values) for values in rows]

    def held_on(self, prefix: str, after: str = "", limit: int = 500) -> builtins.list[str]:
        first, end = claim_rules.tokens_within(prefix, after)
        values = {"namespace": self.namespace, "after": first, "end": end, "limit": limit}
        return [token for (token,) in self._database.read("held_on", values)]

    def dead_at_work(self) -> builtins.list[int]:
        """Return the owners of runs at work that are proven dead."""
        owners = [owner for (owner,) in self._database.read("owners_at_work")]
        return [owner for owner in owners if isinstance(owner, int) and self._owners.is_dead(owner)]

    def claimable(self, at_us: int, limit: int) -> builtins.list[RunRow]:
        values = {
            "namespace": self.namespace,
            "at_us": at_us,
            "dead": msgspec.json.encode(self.dead_at_work()).decode(),
            "limit": limit,
        }
        return list(row_codec.undamaged(self._confirmed("claimable_runs", values)))

    def verify(
        self, run_ids: Iterable[str] | None = None, progress: Progress = no_progress
    ) -> builtins.list[Damage]:
        from holdfast._stores.sqlite.sqlite_verify import lost, verify

        found = verify(self._database, self.namespace, run_ids, progress)
        return [*lost(self.regression()), *found]

    def backup(self, path: str, progress: Progress = no_progress) -> None:
        from holdfast._stores.sqlite.backups import backup

        backup(self._database, path, progress)

    # -- pieces --------------------------------------------------------------------------------

    def _inside(self, connection: Connection) -> lookups.Fetch:
        return lambda name, values: self._database.fetch(connection, name, values)

    def _lease_us(self) -> int:
        return int(self.lease_s * 1_000_000)

    def _compare(self, name: str, values: Mapping[str, object] | tuple[object, ...] = ()) -> None:
        """Now and then, see that an index shows what its table has: the query says what it does not.
        Until that was seen to be so, it is looked at each time."""
        now_s = time.monotonic()
        if now_s - self._scanned_s.get(name, -SCAN_EVERY_S) < SCAN_EVERY_S:
            return
        self._scanned_s.pop(name, None)
        found = self._database.read(name, values)
        if found:
            raise Corrupt(f"an index ({name})", why=f"it does not show {found[0]}")
        self._scanned_s[name] = now_s

    def _confirmed(
        self, name: str, values: Mapping[str, object] | tuple[object, ...]
    ) -> builtins.list[Any]:
        """Read by an index; now and then compare the answer with the table itself."""
        # One statement sees one state, whatever others write meanwhile.
        twice = (*values, *values) if isinstance(values, tuple) else values
        self._compare(f"{name}_hidden", twice)
        return self._database.read(name, values)


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
