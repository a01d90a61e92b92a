"""The store on a PostgreSQL server, for any number of processes on any number of machines.

PostgresStore ─┬─ Database     connections: one appends, one pulses, a pool for the rest
               ├─ Appender     the append: fence, entries, chunks, keys, messages in one round trip
               ├─ Beside       what writes change beside their runs, and the order of all locks
               ├─ Claimer      claims, one by one or as many as a worker has room for
               ├─ Owners       who is alive
               ├─ Remembered   what was acknowledged here, against a server that lost its tail
               └─ Notices      who is told of a commit
"""

from __future__ import annotations

import builtins
import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec
import psycopg

from holdfast._engine.journal.digest import seal
from holdfast._engine.journal.entries import Entry
from holdfast._engine.journal.rows import GENESIS, Applied, KeyState, Lease, RunRow, Write
from holdfast._stores import claim_rules, journal_reader, lookups, row_codec
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
from holdfast._stores.postgres import postgres_open, regression, row_statement
from holdfast._stores.postgres.acknowledged_heads import Remembered
from holdfast._stores.postgres.connection_settings import parse
from holdfast._stores.postgres.fork_origins import keep_origins
from holdfast._stores.postgres.listen import Notices
from holdfast._stores.postgres.notify import Teller
from holdfast._stores.postgres.postgres_append import Appender
from holdfast._stores.postgres.postgres_claims import Claimer
from holdfast._stores.postgres.postgres_database import Database, first_link
from holdfast._stores.postgres.postgres_errors import translated
from holdfast._stores.postgres.postgres_fleet import PostgresFleet
from holdfast._stores.postgres.postgres_owners import Owners
from holdfast._stores.postgres.postgres_queries import fetch_with, packed
from holdfast._stores.postgres.postgres_side_rows import PostgresBeside
from holdfast._stores.postgres.server_connection import Link
from holdfast._stores.store_clock import SLEWED_US, DatabaseClock
from holdfast.errors import RunDeleted, StoreUnusable

T = TypeVar("T")


class PostgresStore(PostgresFleet, PostgresBeside):
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
        with first_link(place) as link:
            try:
                row = postgres_open.open_store(link, place.shown, place.partitions, create=create)
            except psycopg.Error as error:
                raise translated(error, place.shown) from error
            self._set_clock(link)
        self.store_id = row.store_id
        self._adopted_through = row.adopted_through
        self._server_us = row.server_us
        self._remembered = Remembered()
        self._remembered.lost = row.lost
        self._database = Database(place, lease_s)
        self._database.came_back = self._came_back
        self._database.has_forked = self._has_forked
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
        self._fetch = packed(self._database.read)

    def _set_clock(self, link: Link) -> None:
        """Ask for the time of the database; where others have committed a later one, go on from it.

        How far the store's clock is ahead is kept in the store, so that it goes on between processes
        that are opened one after the other, each of which would begin at the same committed time.
        """
        self._clock.ask(lambda: int(link.fetch("now")[0][0]))
        ((server_us, ahead_us, latest_us),) = link.fetch("clock")
        if latest_us - server_us - ahead_us >= SLEWED_US:
            ahead_us = latest_us - server_us
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):  # A role that reads.
                link.change("set_ahead", (ahead_us,))
        self._clock.not_before(max(latest_us, server_us + ahead_us) if ahead_us else latest_us)

    def _has_forked(self) -> None:
        self._clock.has_forked()
        self._remembered.has_forked()
        self._notices.has_forked()

    def _came_back(self, link: Link) -> None:
        """After a connection broke: is it the same server, with all that it acknowledged?"""
        if postgres_open.is_standby(link):
            raise psycopg.errors.ReadOnlySqlTransaction("the server is a standby, so far")
        postgres_open.check_server(link, self.url)
        row = postgres_open.store_row(link)
        if row.store_id != self.store_id:
            raise StoreUnusable(f"{self.url} has another store now; open it again")
        self._remembered.lost = row.lost
        self._adopted_through = row.adopted_through
        self._set_clock(link)
        regression.check(link, self._remembered, self.now_us())
        self._server_us = row.server_us

    # -- the store as a whole ------------------------------------------------------------------

    def now_us(self) -> int:
        return self._clock.now_us()

    def regression(self) -> str | None:
        return self._remembered.lost

    def schema_version(self) -> int:
        ((version, _),) = self._database.read("schema_version")
        return int(version)

    def adopted_through(self) -> int:
        return self._adopted_through

    def adopt(self, actor: str) -> str:
        accepted = self.regression() or "nothing was missing"

        def work(link: Link, _tries: int) -> int:
            with link.writing():
                ((incarnation, through),) = link.fetch("adopt")
                values = (incarnation, self.now_us(), actor, accepted)
                link.change("add_incarnation", (*values, seal(GENESIS, values)))
            return int(through)

        self._adopted_through = self._database.work(work)
        self._remembered.forget()
        self._remembered.lost = None
        return accepted

    def register_owner(self) -> int:
        return self._owners.register()

    def owner_name(self, owner: int | None) -> str:
        return self._owners.name(owner)

    def owner_is_dead(self, owner: int) -> bool:
        return self._owners.is_dead(owner)

    def wait_for_change(self, timeout_s: float) -> bool:
        return self._notices.wait(timeout_s)

    def _tell_others(self) -> None:
        self._database.read("notify", (self.namespace,))

    def _tell(self) -> None:
        """Wake those who wait for a change, here and in other processes."""
        self._notices.tell()
        self._teller.tell()

    def close(self, *, at_work: bool = False) -> None:
        self._teller.close()
        self._notices.close()
        if not at_work:
            with contextlib.suppress(Exception):  # The server may be gone: then the pulse runs out.
                self._owners.end()
        self._database.close()

    # -- writes --------------------------------------------------------------------------------

    def append(self, writes: Sequence[Write]) -> list[Outcome]:
        return self._appender.append(writes)

    def start(self, new: NewRun, owner: int | None) -> Started:
        return self.start_all([(new, owner)])[0]

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
            # What an earlier try committed may not be on the replicas yet. A lock is a write: the
            # commit of it waits until they have both.
            with link.writing():
                etags = [new.origin_etag for new, _ in news]
                keep_origins(link, self.namespace, [run.row for run in made], etags)
                fresh = row_statement.start(link, made, chunks)
                started = self._started(link, news, made, fresh)
                for run in started:
                    link.fetch("lock_run", (run.row.run_no,))
                return started

        started = self._database.work(work)
        for found in started:
            self._remembered.acknowledged(found.row)
        self._tell()
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
            # New; or an earlier try of ours went through.
            lease = None if owner is None else Lease(msgspec.structs.replace(row))
            started.append(Started(row, created=True, lease=lease, entries=run.entries))
        return started

    def claim(self, run_id: str, owner: int, at_us: int) -> Lease | Busy:
        claimed = self._claimer.claim(run_id, owner, at_us)
        self._remembered.acknowledged(claimed.row)
        self._clock.not_before(claimed.row.updated_us)
        self._tell()
        return claimed

    # -- reads ---------------------------------------------------------------------------------

    def get(self, run_id: str) -> RunRow | None:
        return lookups.find_run(self._fetch, self.namespace, run_id)

    def by_number(self, run_no: int) -> RunRow | None:
        found = self._database.read("run_by_number", (run_no,))
        return row_codec.run_row(found[0]) if found else None

    def list(self, query: Query) -> builtins.list[RunRow]:
        statuses = None if query.status is None else [status.value for status in query.status]
        values = row_codec.list_values(query, self.namespace, statuses)
        found = self._database.read("list_runs", values)
        return [row_codec.run_row_or_held(values) for values in found]

    def load(self, row: RunRow, skips: Sequence[tuple[int, int]] = ()) -> builtins.list[Entry]:
        with lookups.unless_removed(self.by_number, row.run_no):
            return journal_reader.load(self._fetch, row, skips)

    def entry(self, run_no: int, seq: int) -> Entry | None:
        row = self.by_number(run_no)
        if row is None:
            return None
        try:
            with lookups.unless_removed(self.by_number, run_no):
                return journal_reader.entry(self._fetch, row, seq)
        except RunDeleted:
            return None

    def chunks(self, run_no: int, number: int) -> Mapping[int, bytes]:
        with lookups.unless_removed(self.by_number, run_no):
            return journal_reader.chunks(self._fetch, run_no, number)

    def key(self, effect: str, key: str) -> KeyState | None:
        return lookups.find_key(self._fetch, self.namespace, effect, key)

    def waiting_on(self, token: str) -> builtins.list[RunRow]:
        found = self._database.read("runs_waiting_on", (token, self.namespace))
        return [row_codec.run_row(values) for values in found]

    def held_on(self, prefix: str, after: str = "", limit: int = 500) -> builtins.list[str]:
        first, end = claim_rules.tokens_within(prefix, after)
        values = {"namespace": self.namespace, "after": first, "end": end, "limit": limit}
        return [token for (token,) in self._database.read("held_on", values)]

    def claimable(self, at_us: int, limit: int) -> builtins.list[RunRow]:
        pulses = self._database.read("owners_of_open_runs")
        dead, late = self._owners.not_alive(pulses, at_us)
        values = {
            "namespace": self.namespace,
            "at_us": at_us,
            "owners": [*dead, *late],
            "late": late,
            "limit": limit,
        }
        return list(row_codec.undamaged(self._database.read("claimable_runs", values)))

    def verify(
        self, run_ids: Iterable[str] | None = None, progress: Progress = no_progress
    ) -> builtins.list[Damage]:
        from holdfast._stores.postgres.postgres_verify import verify

        return verify(self._database, self.namespace, run_ids, progress)

    def backup(self, path: str, progress: Progress = no_progress) -> None:
        del progress
        raise StoreUnusable(
            f"a store on a server is not copied to {path!r}: use pg_dump or the server's own "
            "backups; `holdfast store move SOURCE TARGET` moves runs to a SQLite file"
        )

    # -- pieces --------------------------------------------------------------------------------

    def _one_state(self, work: Callable[[lookups.Fetch], T]) -> T:
        """Have all that some work reads come from one state of the database."""

        def reading_all(link: Link, _tries: int) -> T:
            with link.one_state():
                return work(fetch_with(link))

        return self._database.work(reading_all)

    def _lease_until_us(self) -> int:
        return self.now_us() + int(self.lease_s * 1_000_000)
