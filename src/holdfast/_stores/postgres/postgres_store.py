"""The store on a PostgreSQL server, for any number of processes on any number of machines.

SqlStore ── PostgresStore ─┬─ Database     connections: one appends, one pulses, a pool for the rest
                           ├─ Writer       transactions, tried again when a connection breaks
                           ├─ Appender     appends a batch, in one round trip if it can
                           ├─ Claimer      claims as many runs as a worker has room for
                           ├─ Owners       liveness of processes
                           ├─ Remembered   acknowledged heads, to detect a server that lost
                           │               its tail
                           └─ Notices      notifications of commits
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import psycopg

from holdfast._engine.journal.rows import GENESIS, Applied, Lease, RunRow, Write
from holdfast._engine.values.digest import seal
from holdfast._stores import claim_rules, row_codec, schema_versions
from holdfast._stores.contract import (
    Damage,
    NewRun,
    Outcome,
    Progress,
    Started,
    Wanted,
    no_progress,
)
from holdfast._stores.lookups import Fetch
from holdfast._stores.postgres import postgres_open, regression, row_statement
from holdfast._stores.postgres.acknowledged_heads import Remembered
from holdfast._stores.postgres.connection_settings import parse
from holdfast._stores.postgres.notifications import Notices, Teller
from holdfast._stores.postgres.postgres_append import Appender
from holdfast._stores.postgres.postgres_claims import Claimer
from holdfast._stores.postgres.postgres_database import Database, Transaction, Writer, first_link
from holdfast._stores.postgres.postgres_errors import translated
from holdfast._stores.postgres.postgres_owners import Owners
from holdfast._stores.postgres.postgres_user_connection import within
from holdfast._stores.postgres.server_connection import Link
from holdfast._stores.sql.database import Snapshot
from holdfast._stores.sql.sql_store import SqlStore, keep_origins
from holdfast._stores.sql.verify import finding
from holdfast._stores.store_clock import SLEWED_US, DatabaseClock
from holdfast.errors import StoreError, StoreUnusable


class PostgresStore(SqlStore[Database, Writer, Owners]):
    """One process's handle on a store on a server."""

    def __init__(
        self,
        url: str,
        *,
        namespace: str = "default",
        clock: Callable[[], int] | None = None,
        lease_s: float = 30.0,
        create: bool = True,
    ) -> None:
        place = parse(url)
        self.url = place.shown
        self.path = None
        self.namespace = namespace
        self.lease_s = lease_s
        self._clock = DatabaseClock(clock)
        self.now_us = self._clock.now_us
        with first_link(place) as link:
            try:
                row = postgres_open.open_store(link, place.shown, place.partitions, create=create)
            except psycopg.Error as error:
                raise translated(error, place.shown) from error
            self._set_clock(link)
        self.store_id = row.store_id
        self._accepted_through = row.accepted_through
        self._server_us = row.server_us
        self._remembered = Remembered()
        self._remembered.lost = row.lost
        self._database = Database(place, lease_s)
        self._database.came_back = self._came_back
        self._database.has_forked = self._has_forked
        self._database.own_checks = self._check_row
        self._owners = Owners(self._database, self.now_us, int(lease_s * 1_000_000))
        self._notices = Notices(place.conninfo, namespace)
        self._teller = Teller(self._tell_others)
        self._appender = Appender(
            self._database,
            self._remembered,
            self._owners,
            self.now_us,
            self._lease_until_us,
            namespace,
            self._tell,
        )
        self._claimer = Claimer(
            self._database, self._owners, self.now_us, self._lease_until_us, namespace
        )
        self._writer = Writer(self._database, self._committed)

    def _set_clock(self, link: Link) -> None:
        """Read the time of the database; continue from a later committed time, if there is one.

        The lead of the store's clock is kept in the store, so that the clock continues across
        processes that open the store one after the other; each would otherwise begin at the same
        committed time.
        """
        self._clock.ask(lambda: int(link.fetch("now")[0][0]))
        ((server_us, ahead_us, latest_us),) = link.fetch("clock")
        if ahead_us is None:
            raise schema_versions.missing("the row of the store")
        if latest_us - server_us - ahead_us >= SLEWED_US:
            ahead_us = latest_us - server_us
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):  # A read-only role.
                link.change("set_ahead", (ahead_us,))
        self._clock.not_before(max(latest_us, server_us + ahead_us) if ahead_us else latest_us)

    def _has_forked(self) -> None:
        self._clock.has_forked()
        self._remembered.has_forked()
        self._notices.has_forked()

    def _came_back(self, link: Link) -> None:
        """After a broken connection: check that it is the same server, with all acknowledged
        commits."""
        if postgres_open.is_standby(link):
            raise psycopg.errors.ReadOnlySqlTransaction("the server is a standby, so far")
        postgres_open.check_server(link, self.url)
        row = self._row(link.fetch)
        self._remembered.lost = row.lost
        self._accepted_through = row.accepted_through
        self._set_clock(link)
        regression.check(link, self._remembered, self.now_us())
        self._server_us = row.server_us

    def _row(self, fetch: Fetch) -> postgres_open.StoreRow:
        """Return the row of the store; refuse another store in its place."""
        row = postgres_open.store_row(fetch)
        if row.store_id != self.store_id:
            raise StoreUnusable(f"{self.url} has another store now; open it again")
        return row

    def _check_row(self, state: Snapshot) -> Iterator[Damage]:
        """Check the row of the store. The server checks its pages by itself."""
        try:
            self._row(state.fetch)
        except StoreError as error:
            yield finding(error)

    # -- the store as a whole ------------------------------------------------------------------

    def regression(self) -> str | None:
        return self._remembered.lost

    def schema_version(self) -> int:
        ((version, _),) = self._database.read("schema_version")
        return int(version)

    def accepted_through(self) -> int:
        return self._accepted_through

    def accept_data_loss(self, actor: str) -> str:
        accepted = self.regression() or "nothing was missing"

        def work(link: Link, _tries: int) -> int:
            with link.writing():
                ((incarnation, through),) = link.fetch("accept_data_loss")
                values = (incarnation, self.now_us(), actor, accepted)
                link.change("add_incarnation", (*values, seal(GENESIS, values)))
            return int(through)

        self._accepted_through = self._database.work(work)
        self._remembered.forget()
        self._remembered.lost = None
        return accepted

    def wait_for_change(self, timeout_s: float) -> bool:
        return self._notices.wait(timeout_s)

    def _tell_others(self) -> None:
        self._database.read("notify", (self.namespace,))

    def _tell(self) -> None:
        """Wake the threads that wait for a change, in this and in other processes."""
        self._notices.tell()
        self._teller.tell()

    def _committed(self, rows: Sequence[RunRow]) -> None:
        """Wake the threads that wait for a change, and remember the claimed runs."""
        self._acknowledged(rows)
        self._tell()

    def _acknowledged(self, rows: Sequence[RunRow]) -> None:
        for row in rows:
            self._remembered.acknowledged(row)
            self._clock.not_before(row.updated_us)

    def close(self, *, at_work: bool = False) -> None:
        self._teller.close()
        self._notices.close()
        if not at_work:
            with contextlib.suppress(Exception):  # The server may be gone; then the pulse expires.
                self._owners.end()
        self._database.close()

    # -- writes --------------------------------------------------------------------------------

    def append(self, writes: Sequence[Write]) -> list[Outcome]:
        return self._appender.append(writes)

    def append_within(self, lease: Lease, work: Callable[[Any], Write]) -> Outcome:
        return within(self._database, self._appender, lease, work)

    def start_all(self, news: Sequence[tuple[NewRun, int | None]]) -> builtins.list[Started]:
        until_us = self._lease_until_us()
        made: list[Applied] = []

        def work(link: Link, tries: int) -> builtins.list[Started]:
            if not made:
                numbers = [number for (number,) in link.fetch("run_numbers", (len(news),))]
                made.extend(
                    claim_rules.new_run(new, self.namespace, run_no, owner, until_us)
                    for run_no, (new, owner) in zip(numbers, news, strict=True)
                )
            chunks = [
                (run.row.run_no, number, body)
                for run, (new, _) in zip(made, news, strict=True)
                for number, body in new.chunks
            ]
            if not tries and all(new.origin is None for new, _ in news):
                fresh = row_statement.start(link, made, chunks)
                return self._started(link, news, made, fresh)
            # A commit of an earlier try may not be on the replicas yet. A lock is a write, so its
            # commit waits until the replicas have both.
            with link.writing():
                etags = [new.origin_etag for new, _ in news]
                tx = Transaction(link, tries)
                keep_origins(tx, self.namespace, [run.row for run in made], etags)
                fresh = row_statement.start(link, made, chunks)
                started = self._started(link, news, made, fresh)
                for run in started:
                    link.fetch("lock_run", (run.row.run_no,))
                return started

        started = self._database.work(work)
        self._committed([found.row for found in started])
        return started

    def _started(
        self,
        link: Link,
        news: Sequence[tuple[NewRun, int | None]],
        made: Sequence[Applied],
        fresh: set[int],
    ) -> builtins.list[Started]:
        ids = [run.row.run_id for run in made if run.row.run_no not in fresh]
        found = link.fetch("runs_by_ids", (self.namespace, ids)) if ids else []
        known = {row.run_id: row for row in (row_codec.run_row(values) for values in found)}
        started: builtins.list[Started] = []
        for run, (_, owner) in zip(made, news, strict=True):
            row = run.row
            existing = None if row.run_no in fresh else known.get(row.run_id)
            if existing is not None and existing.digest != row.digest:
                started.append(Started(existing, created=False))
                continue
            # New, or an earlier try was committed.
            lease = None if owner is None else Lease(msgspec.structs.replace(row))
            started.append(Started(row, created=True, lease=lease, entries=run.entries))
        return started

    def take(self, wanted: Wanted) -> builtins.list[Lease]:
        taken = self._claimer.take(wanted)
        self._acknowledged([lease.row for lease in taken])
        return taken

    def pulse(
        self, owner: int, facts: str, working: Sequence[tuple[int, int]] = ()
    ) -> builtins.list[int]:
        def work(link: Link, _tries: int) -> builtins.list[int]:
            self._set_clock(link)
            link.change("put_pulse", (owner, self._lease_until_us(), facts))
            # Another process may have detected or accepted data loss.
            row = self._row(link.fetch)
            if row.server_us != self._server_us:
                self._came_back(link)  # Another server, behind a pooler that kept the connection.
            else:
                self._accepted_through = row.accepted_through
                self._remembered.lost = row.lost
            if not working:
                return []
            values = ([run_no for run_no, _ in working], [epoch for _, epoch in working])
            return [run_no for (run_no,) in link.fetch("lost_runs", values)]

        return self._database.pulsing.again(work)

    def backup(self, path: str, progress: Progress = no_progress) -> None:
        del progress
        raise StoreUnusable(
            f"a store on a server is not copied to {path!r}: use pg_dump or the server's own "
            "backups; `holdfast store move SOURCE TARGET` moves runs to a SQLite file"
        )
