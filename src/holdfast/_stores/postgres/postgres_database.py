"""The connections to one server (one that appends, one for pulses, a pool for all else) and the
transactions of a store on it.

Failed work is repeated as a whole, until it succeeds or the time limit ends. So all work that is
passed to `again` must find out whether an earlier try was committed: a connection that breaks
during a commit leaves that unknown (I18).

A connection must never cross a fork: the child would write into the parent's protocol stream.
"""

from __future__ import annotations

import itertools
import logging
import os
import random
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import psycopg
from psycopg import pq
from psycopg_pool import ConnectionPool

from holdfast._engine.journal.rows import Applied, RunRow
from holdfast._stores import lookups, row_codec
from holdfast._stores.contract import Damage, Progress
from holdfast._stores.postgres import row_statement
from holdfast._stores.postgres.connection_settings import Place
from holdfast._stores.postgres.postgres_errors import may_be_tried_again, not_opened, translated
from holdfast._stores.postgres.server_connection import Link
from holdfast._stores.sql.database import Snapshot
from holdfast.errors import Corrupt, StoreError, StoreFailed

log = logging.getLogger("holdfast.store")
logging.getLogger("psycopg.pool").setLevel(logging.ERROR)
# A broken connection cannot be cleaned up; the error itself is enough.
logging.getLogger("psycopg").addFilter(lambda record: not record.msg.startswith("error ignored"))

T = TypeVar("T")
Work = Callable[[Link, int], T]
"""Work with a connection; the number is the count of earlier tries."""

CLOSED = "this handle is closed; open the store again"
LONGEST_PAUSE_S = 1.0
BESIDE_PATIENCE_S = 3.0
"""The time limit for rows that belong to no run: they are written again a minute later."""
_LINK_OPTIONS: dict[str, Any] = {"autocommit": True, "prepare_threshold": None}


class Steady:
    """One connection for one purpose, used by one thread at a time, reopened when it breaks."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._link: Link | None = None
        self._lock = threading.RLock()
        self._broke = False

    def again(self, work: Work[T], patience_s: float | None = None) -> T:
        """Do work with this connection until it succeeds."""
        with self._lock:
            return self._database.again(self._once, work, patience_s)

    def _once(self, work: Work[T], tries: int) -> T:
        if self._link is None:
            self._link = self._connected()
        try:
            return work(self._link, tries)
        except BaseException:
            if self._link.closed or self._link.broken or tries:
                self.drop()
            raise

    def _connected(self) -> Link:
        link = self._database.connect()
        if self._broke:
            try:
                self._database.came_back(link)
            except BaseException:
                link.abandon()
                raise
            self._broke = False
        return link

    def drop(self) -> None:
        """Drop the connection; the next work opens another."""
        link, self._link = self._link, None
        self._broke = True
        if link is not None:
            link.abandon()

    def close(self) -> None:
        """Close the connection properly."""
        link, self._link = self._link, None
        if link is not None:
            link.close()


class Database:
    """All connections of one handle."""

    def __init__(self, place: Place, lease_s: float) -> None:
        self.place = place
        self.patience_s = max(2.0, min(20.0, lease_s * 0.6))
        """How long work is repeated: less than a lease, so that it ends before others may take the
        runs over."""
        self.came_back: Callable[[Link], None] = lambda _link: None
        """Called with the first connection after one broke, before it is used."""
        self.own_checks: Callable[[Snapshot], Iterable[Damage]] = lambda _state: ()
        self.has_forked: Callable[[], None] = lambda: None
        """Called in a forked child, where the threads that held locks do not exist."""
        self._lease_s = lease_s
        self._closed = False
        self._links: weakref.WeakSet[Link] = weakref.WeakSet()
        self._fresh()
        _open_databases.add(self)

    def _fresh(self) -> None:
        self._pid = os.getpid()
        self.appending = Steady(self)
        self.pulsing = Steady(self)
        self._pool: ConnectionPool[Link] | None = None
        self._pool_lock = threading.Lock()
        self._pool_broke = False

    def connect(self) -> Link:
        """Open a connection to a server that accepts writes."""
        link = Link.connect(self.place.conninfo, **_LINK_OPTIONS)
        self._prepared(link)
        return link

    def _prepared(self, link: Link) -> None:
        link.patience_s = max(1.0, min(15.0, self._lease_s * 0.5))
        link.idle_s = self._lease_s
        self._links.add(link)

    def pool(self) -> ConnectionPool[Link]:
        """Return the pool; open it on first use."""
        with self._pool_lock:
            if self._pool is None:
                self._pool = ConnectionPool(
                    self.place.conninfo,
                    connection_class=Link,
                    kwargs=_LINK_OPTIONS,
                    configure=self._prepared,
                    min_size=1,
                    max_size=self.place.pool_size,
                    num_workers=1,
                    timeout=self.patience_s,
                    reconnect_timeout=self.patience_s,
                    open=True,
                    name="holdfast",
                )
            return self._pool

    # -- work ----------------------------------------------------------------------------------

    def read(self, name: str, values: Any = ()) -> list[Any]:
        """Run a named query on any connection."""
        return self.work(lambda link, _tries: link.fetch(name, values))

    def read_by_index(self, name: str, values: Any = ()) -> list[Any]:
        """Run a named query; the server has its own checksums and tools for its indexes."""
        return self.read(name, values)

    def check_index(self, name: str) -> None:
        """Do nothing; see `read_by_index`."""

    def check_numbers(
        self, rows: Sequence[RunRow], limit: int, before: int | None, last_run_no: int
    ) -> None:
        """Do nothing: some numbers are never used."""

    def in_one_state(self, work: Callable[[Callable[[str, Any], list[Any]]], T]) -> T:
        """Do work whose reads all see one state of the database."""

        def reading_all(link: Link, _tries: int) -> T:
            with link.one_state():
                return work(link.fetch)

        return self.work(reading_all)

    def snapshot(self, work: Callable[[Snapshot], T], progress: Progress) -> T:
        """Do work with one state of the whole database, on a separate connection, because it may
        take long while others read."""
        numbers = itertools.count()

        def once(work: Work[T], tries: int) -> T:
            link = self.connect()
            try:
                with link.one_state():
                    return work(link, tries)
            finally:
                link.close()

        def checked(link: Link, _tries: int) -> T:
            def each(name: str) -> Iterator[Any]:
                return link.each(name, f"holdfast_{next(numbers)}")

            found = link.fetch("store_row")  # If it is not there, `own_checks` says so.
            lost = found[0][3] if found else None
            return work(Snapshot(link.fetch, each, progress, self.own_checks, lost))

        return self.again(once, checked)

    def work(self, work: Work[T], patience_s: float | None = None) -> T:
        """Do work on a connection of the pool until it succeeds."""
        return self.again(self._pooled, work, patience_s)

    def _pooled(self, work: Work[T], tries: int) -> T:
        with self.pool().connection(timeout=self.patience_s) as link:
            if self._pool_broke:
                self._pool_broke = False
                try:
                    self.came_back(link)
                except BaseException:
                    self._pool_broke = True
                    raise
            try:
                return work(link, tries)
            except BaseException:
                if link.closed or link.broken:
                    self._pool_broke = True
                raise

    def again(
        self, once: Callable[[Work[T], int], T], work: Work[T], patience_s: float | None = None
    ) -> T:
        """Repeat work until it succeeds, with growing pauses; give up at the time limit."""
        self.check_usable()
        patience_s = self.patience_s if patience_s is None else patience_s
        deadline_s = time.monotonic() + patience_s
        tries = 0
        while True:
            try:
                return once(work, tries)
            except StoreError:
                raise
            except Exception as error:
                if not isinstance(error, psycopg.Error) and not may_be_tried_again(error):
                    raise
                left_s = deadline_s - time.monotonic()
                if self._closed or not may_be_tried_again(error) or left_s <= 0:
                    raise self.translated(error) from error
                if tries == 0:
                    log.debug("%s: trying again after %s", self.place.shown, error)
            tries += 1
            pause_s = min(LONGEST_PAUSE_S, 0.01 * 2 ** min(tries, 8)) * random.uniform(0.5, 1.0)  # noqa: S311
            time.sleep(min(pause_s, max(0.0, left_s)))

    def translated(self, error: BaseException) -> BaseException:
        """Return the error of Holdfast for an error of the driver; an error of one statement stays
        unchanged."""
        if may_be_tried_again(error) or isinstance(error, psycopg.OperationalError):
            return translated(error, self.place.shown)
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return translated(error, self.place.shown)
        return error

    # -- the handle ----------------------------------------------------------------------------

    def check_usable(self) -> None:
        """Refuse a closed handle; reset in a forked child."""
        if self._closed:
            raise StoreFailed(CLOSED)
        if self._pid != os.getpid():
            self.after_fork()

    def after_fork(self) -> None:
        """Leave the connections to the parent, without closing them at the server."""
        for link in list(self._links):
            link.abandon()
        self._links = weakref.WeakSet()
        pool = self._pool
        if pool is not None:
            _inherited.append(
                pool
            )  # Its threads do not exist here; it must not be cleaned up either.
        self._fresh()
        self.has_forked()

    def close(self) -> None:
        """Close everything; safe to call twice."""
        if self._closed:
            return
        self._closed = True
        if self._pid != os.getpid():
            return
        self.appending.close()
        self.pulsing.close()
        if self._pool is not None:
            self._pool.close(timeout=1.0)


# -- transactions ----------------------------------------------------------------------------


class Transaction:
    """One transaction of `Writer.transact`."""

    def __init__(self, link: Link, tries: int) -> None:
        self.tries = tries
        self.notifies = False
        self.rows: list[RunRow] = []
        """Runs that this process claims."""
        self._link = link
        self.fetch = link.fetch
        self.change = link.change

    def change_all(self, statements: Sequence[tuple[str, Any]]) -> None:
        """Run several statements in one round trip."""
        if statements:
            self._link.fetch_each(*statements)

    def lock(self, *names: tuple[str, ...]) -> None:
        """Lock names until the commit, in the common order."""
        if names:
            self.fetch("lock_names", (sorted(row_codec.name_hash(*name) for name in names),))

    def lock_row(self, name: str, values: Any) -> None:
        """Run a statement that locks a row."""
        self.fetch(name, values)

    def locked_run(self, namespace: str, run_id: str) -> RunRow | None:
        """Return the verified row of a run, locked until the commit."""
        found = self.fetch("run_by_id_locked", (namespace, run_id))
        if found:
            return row_codec.run_row(found[0])
        if lookups.find_run(self.fetch, namespace, run_id) is not None:
            raise Corrupt("the index of run ids", run_id=run_id, why="it does not show this run")
        return None

    def run_numbers(self, count: int) -> list[int]:
        """Return numbers for new runs."""
        return [number for (number,) in self.fetch("run_numbers", (count,))]

    def add_run(self, made: Applied, chunks: Sequence[tuple[int, bytes]]) -> bool:
        """Insert a run with its entries and chunks; return False if its id exists."""
        run_no = made.row.run_no
        own = [(run_no, number, body) for number, body in chunks]
        return bool(row_statement.start(self._link, [made], own))

    def put_run(self, was: RunRow, made: Applied) -> None:
        """Change the locked row of a run, and insert entries."""
        changed = row_statement.send(self._link, [(was, made)], [])
        assert changed, "the row is locked"

    def changed(self, digest: bytes = b"", row: RunRow | None = None) -> None:
        """Wake the threads that wait for a change, after the commit."""
        del digest
        self.notifies = True
        if row is not None:
            self.rows.append(row)


class Writer:
    """The writing side of one handle. `committed` receives the runs that a transaction claimed."""

    last_run_no = 0
    """Unknown: a sequence assigns the numbers, and some are never used."""

    def __init__(self, database: Database, committed: Callable[[Sequence[RunRow]], None]) -> None:
        self._database = database
        self._committed = committed

    def transact(self, work: Callable[[Transaction], T], patience_s: float | None = None) -> T:
        """Do work in one transaction, repeatedly until it succeeds."""

        def tried(link: Link, tries: int) -> tuple[T, Transaction]:
            tx = Transaction(link, tries)
            with link.writing():
                return work(tx), tx

        result, tx = self._database.work(tried, patience_s)
        if tx.notifies:
            self._committed(tx.rows)
        return result

    def beside(self, work: Callable[[Transaction], T]) -> T:
        """Do work in a transaction on rows that belong to no run."""
        return self.transact(work, BESIDE_PATIENCE_S)


def first_link(place: Place) -> Link:
    """Open the first connection, so that problems are reported at once."""
    try:
        return Link.connect(place.conninfo, **_LINK_OPTIONS)
    except psycopg.Error as error:
        refused = not_opened(error, place)
        refused.unreachable = is_away(place)
        raise refused from None


def is_away(place: Place) -> bool:
    """Return whether no server answers at this address, or it is not ready yet; the credentials do
    not matter."""
    return pq.PGconn.ping(place.conninfo.encode()) in (pq.Ping.NO_RESPONSE, pq.Ping.REJECT)


_open_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_inherited: list[Any] = []


def _after_fork_in_child() -> None:
    for database in list(_open_databases):
        database.after_fork()


os.register_at_fork(after_in_child=_after_fork_in_child)
