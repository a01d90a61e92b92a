"""The connections to one SQLite file: one that writes, a few that read, and the write-ahead log (WAL).

A connection must never cross a fork: SQLite keeps its locks per process and remembers them in
memory that the child inherits, so a child could write without the locks that it believes it has. So
every connection is closed just before a fork and reopened, in both processes, on the next use. The
process id reveals a fork that Python does not see.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import random
import threading
import time
import urllib.parse
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any, TypeVar, cast

import apsw
import msgspec

from holdfast._engine.journal.rows import RunRow
from holdfast._stores import row_codec
from holdfast._stores.contract import Damage, Progress
from holdfast._stores.sql.database import Snapshot
from holdfast._stores.sql.verify import finding
from holdfast._stores.sqlite import migrations
from holdfast._stores.sqlite.apsw_types import Connection, connect
from holdfast._stores.sqlite.sqlite_errors import BUSY_S, translated
from holdfast.errors import Corrupt, HoldfastError, StoreError, StoreFailed, StoreUnusable

Q = migrations.Q

T = TypeVar("T")

READERS_MAX = 4
SCAN_EVERY_S = 60.0
"""How often an answer of an index is compared with the table."""
LOOK_EVERY_S = 1.0
"""How often the existence of the file is checked."""
SAFE_VERSION = (3, 51, 3)
"""The first safe version: earlier SQLite can lose commits when a WAL is reset while another
connection writes."""

CLOSED = "this handle is closed; open the store again"
ENDED = "a memory: store ends with the process that opened it, and that has closed it or is gone"
_CACHED_STATEMENTS = 200


class Database:
    """One file, opened by one handle of a store."""

    def __init__(self, path: str, *, read_only: bool, page_size: int, durable: bool = True) -> None:
        self.path = path
        self.durable = durable
        """Whether commits survive a crash of the machine; a temporary file ends with its
        process."""
        self.lock = threading.RLock()
        self.wal_pages = 0
        self._read_only = read_only
        self._page_size = page_size
        self._pid = os.getpid()
        self._writer: Connection | None = None
        self._readers = _Readers(self._connect_reader)
        self._closed = False
        self._identity: tuple[int, int] | None = None
        """Device and inode of the open file."""
        self._looked_s = float("-inf")
        self._scanned_s: dict[str, float] = {}
        _open_databases.add(self)

    # -- connections ---------------------------------------------------------------------------

    @property
    def writer(self) -> Connection:
        """The connection that writes; the caller holds the lock."""
        if self._writer is None:
            self._writer = self._connect_writer()
        return self._writer

    def check_process(self) -> None:
        """Refuse use in a child whose fork Python did not see, or after `close`."""
        if self._closed:
            raise StoreFailed(CLOSED)
        if self._pid != os.getpid():
            raise StoreFailed("this process was forked behind Python's back; open the store again")

    def _connect(self, flags: int) -> Connection:
        self.check_process()
        self.check_same_file()
        try:
            connection = connect(
                self._name(),
                flags | apsw.SQLITE_OPEN_NOFOLLOW | apsw.SQLITE_OPEN_URI,
                _CACHED_STATEMENTS,
            )
            connection.set_busy_handler(_patience())
            for pragma in ("no_mmap", "foreign_keys", "untrusted_schema"):
                connection.execute(Q[pragma]).fetchall()
            if not self.durable:
                connection.execute(Q["not_synchronous"])
                connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        except (apsw.Error, UnicodeDecodeError) as error:
            raise self.translated(error) from error
        return connection

    def _name(self) -> str:
        """Return the file as a URI. SQLite cannot create its own files in a read-only folder;
        without a WAL the database does not change then, and needs none."""
        name = "file:" + urllib.parse.quote(self.path)
        folder = os.path.dirname(self.path)
        if self._read_only and not os.access(folder, os.W_OK) and not _size(f"{self.path}-wal"):
            return name + "?immutable=1"
        return name

    def _connect_writer(self) -> Connection:
        if self._read_only:
            return self._connect(apsw.SQLITE_OPEN_READONLY)
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE)
        try:
            migrations.check_ours(connection, self.path)
            connection.execute(Q["page_size"].format(self._page_size))
            self._begin_wal(connection)
            if self.durable:
                self._set(connection, "synchronous", 2)
            connection.execute(Q["no_auto_checkpoint"])
            connection.execute(Q["wal_size_limit"])
            connection.set_wal_hook(self._note_wal)
        except (apsw.Error, UnicodeDecodeError) as error:
            told = self.translated(
                error, connection
            )  # Before the close, which clears the error code.
            connection.close()
            raise told from error
        except StoreError:
            connection.close()
            raise
        return connection

    def _connect_reader(self) -> Connection:
        if self._read_only:
            return self._connect(apsw.SQLITE_OPEN_READONLY)
        connection = self._connect(apsw.SQLITE_OPEN_READWRITE)
        connection.execute(Q["query_only"])
        return connection

    def _begin_wal(self, connection: Connection) -> None:
        """Set WAL mode with retries: if two processes open a new file at once, SQLite refuses one
        of them without calling its busy handler."""
        patience = _patience()
        for tries in itertools.count():
            try:
                self._set(connection, "journal_mode", "wal")
                break
            except apsw.BusyError:
                if not patience(tries):
                    raise

    def _set(self, connection: Connection, name: str, wanted: Any) -> None:
        """Set a pragma that durability depends on, and read it back."""
        connection.execute(Q[name])
        found = connection.execute(Q[f"{name}_is"]).fetchall()
        if found != [(wanted,)]:
            raise StoreUnusable(f"{self.path}: {name} is {found!r} and cannot be made {wanted!r}")

    def _note_wal(self, connection: Connection, name: str, pages: int) -> int:
        del connection, name
        self.wal_pages = pages
        return apsw.SQLITE_OK

    # -- reading -------------------------------------------------------------------------------

    def read(self, name: str, values: Any = ()) -> list[Any]:
        """Return all rows of a named query. An open file stays readable after its deletion, so its
        existence is checked from time to time."""
        now_s = time.monotonic()
        if now_s - self._looked_s > LOOK_EVERY_S:
            self.check_same_file()
            self._looked_s = now_s
        with self._readers.one() as connection:
            return self.fetch(connection, name, values)

    def read_by_index(self, name: str, values: Any = ()) -> list[Any]:
        """Read by an index; from time to time compare the answer with the table."""
        # One statement sees one state, despite concurrent writes.
        is_named = type(values) is dict
        self.check_index(f"{name}_hidden", values if is_named else [*values, *values])
        return self.read(name, values)

    def check_index(self, name: str, values: Any = ()) -> None:
        """From time to time, check that an index shows all rows of its table; the query returns the
        hidden ones. Until a check succeeds, every call checks."""
        now_s = time.monotonic()
        if now_s - self._scanned_s.get(name, -SCAN_EVERY_S) < SCAN_EVERY_S:
            return
        self._scanned_s.pop(name, None)
        found = self.read(name, values)
        if found:
            raise Corrupt(f"an index ({name})", why=f"it does not show {found[0]}")
        self._scanned_s[name] = now_s

    def check_numbers(
        self, rows: Sequence[RunRow], limit: int, before: int | None, last_run_no: int
    ) -> None:
        """Detect a run that is missing from the table: every assigned number must exist."""
        last = max([last_run_no, *(row.run_no for row in rows)])
        if before is not None:
            last = min(last, before - 1)
        first = rows[-1].run_no if len(rows) >= limit else 1
        ((count,),) = self.read("count_numbers", (first, last))
        if rows and count != last - first + 1:
            raise Corrupt("the table runs", why=f"a run between {first} and {last} is missing")
        for (run_no,) in self.read("half_removed", (first, last)):
            why = "it says that it was removed, and its journal is there"
            raise Corrupt("its row in runs", run_id=f"number {run_no}", why=why)

    def in_one_state(self, work: Callable[[Callable[[str, Any], list[Any]]], T]) -> T:
        """Do work whose reads all see one state of the file."""
        self.check_same_file()
        with self.reader() as connection:
            connection.execute(Q["begin_reading"])
            try:
                return work(functools.partial(self.fetch, connection))
            finally:
                if connection.in_transaction:
                    connection.execute(Q["rollback"])

    def snapshot(self, work: Callable[[Snapshot], T], progress: Progress) -> T:
        """Do work with one state of the whole file."""
        self.check_same_file()
        with self.reader() as connection:
            connection.execute(Q["begin_reading"])

            def own_checks(state: Snapshot) -> list[Damage]:
                return [*self._pages(state, connection), *_numbers(state.fetch)]

            fetch = functools.partial(self.fetch, connection)
            each = functools.partial(self.each, connection)
            state = Snapshot(fetch, each, progress, own_checks)
            try:
                return work(state)
            finally:
                if connection.in_transaction:
                    connection.execute(Q["rollback"])

    def _pages(self, state: Snapshot, connection: Connection) -> Iterator[Damage]:
        """Run SQLite's check of pages and indexes, and compare the definitions of the tables."""
        state.progress("pages", 0, 0)
        try:
            for (text,) in state.fetch("integrity_check", ()):
                if text != "ok":
                    yield Damage("the database file", str(text))
            migrations.check_schema(connection, self.path)
        except HoldfastError as error:
            yield finding(error)

    @contextlib.contextmanager
    def reader(self) -> Generator[Connection]:
        """Lend a reading connection."""
        with self._readers.one() as connection:
            yield connection

    def another(self) -> Connection:
        """Open a reading connection, for a copy of the whole file; the caller closes it."""
        return self._connect_reader()

    def fetch(self, connection: Connection, name: str, values: Any = ()) -> list[Any]:
        """Return all rows of a named query on this connection."""
        try:
            return connection.execute(Q[name], _in_sql(values)).fetchall()
        except UnicodeDecodeError as error:
            raise Corrupt(f"a text found by {name} in {self.path}", why=str(error)) from None
        except (apsw.Error, MemoryError) as error:
            raise self.translated(error, connection) from error

    def each(self, connection: Connection, name: str) -> Iterator[Any]:
        """Yield the rows of a named query on this connection, one by one."""
        try:
            yield from connection.execute(Q[name])
        except UnicodeDecodeError as error:
            raise Corrupt(f"a text found by {name} in {self.path}", why=str(error)) from None
        except (apsw.Error, MemoryError) as error:
            raise self.translated(error, connection) from error

    def translated(self, error: Exception, connection: Connection | None = None) -> Exception:
        """Return the error of Holdfast for an error of SQLite."""
        return translated(error, self.path, connection.system_errno if connection else 0)

    # -- the file ------------------------------------------------------------------------------

    def check_same_file(self) -> None:
        """Raise an error if the path names another file than the open one, or none."""
        found = self._file_identity()
        if self._identity is None:
            self._identity = found
        elif self._identity != found:
            raise StoreFailed(
                f"{self.path} was replaced by another file while it was open; open the store again"
            )

    def _file_identity(self) -> tuple[int, int]:
        """Return device and inode of the file at the path."""
        try:
            found = os.lstat(self.path)
        except OSError as error:
            if not self.durable:
                raise StoreFailed(ENDED) from error
            raise StoreFailed(
                f"{self.path} was deleted or moved while it was open ({error.strerror}); "
                "put it back and open the store again"
            ) from error
        return found.st_dev, found.st_ino

    def close(self) -> None:
        """Close all connections; safe to call twice."""
        with self.lock:
            self._closed = True
            self._disconnect()
            self._readers.close()
        _open_databases.discard(self)

    def _disconnect(self) -> None:
        """Close the connections of this process."""
        self._readers.pause()
        writer, self._writer = self._writer, None
        if writer is not None:
            with contextlib.suppress(apsw.Error):
                writer.close()

    # -- forks ---------------------------------------------------------------------------------

    def before_fork(self) -> None:
        """Close everything that a child could inherit; hold the lock until `after_fork`."""
        self.lock.acquire()
        self._disconnect()

    def after_fork(self, *, in_child: bool) -> None:
        """Release the lock, in both processes."""
        self._pid = os.getpid()
        if in_child:
            self.lock = threading.RLock()
            self._readers = _Readers(self._connect_reader)
        else:
            self._readers.resume()
            self.lock.release()


class _Readers:
    """A few reading connections, lent to one thread at a time."""

    def __init__(self, connect: Callable[[], Connection]) -> None:
        self._connect = connect
        self._returned = threading.Condition()
        self._free: list[Connection] = []
        self._lent = 0
        self._paused = False
        self._closed = False

    @contextlib.contextmanager
    def one(self) -> Generator[Connection]:
        """Lend a connection."""
        connection = self._take()
        try:
            if connection is None:
                connection = self._connect()
            yield connection
        finally:
            with self._returned:
                self._lent -= 1
                if connection is not None:
                    self._free.append(connection)
                self._returned.notify_all()

    def _take(self) -> Connection | None:
        with self._returned:
            self._returned.wait_for(
                lambda: self._closed or (self._lent < READERS_MAX and not self._paused)
            )
            if self._closed:
                raise StoreFailed(CLOSED)
            self._lent += 1
            return self._free.pop() if self._free else None

    def pause(self) -> None:
        """Wait for all connections, close them, and lend none until `resume`."""
        with self._returned:
            self._paused = True  # First, or the count would never reach zero with busy readers.
            self._returned.wait_for(lambda: self._lent == 0)
            for connection in self._free:
                with contextlib.suppress(apsw.Error):
                    connection.close()
            self._free.clear()

    def resume(self) -> None:
        """Lend connections again."""
        with self._returned:
            self._paused = False
            self._returned.notify_all()

    def close(self) -> None:
        """Wait for all connections and close them permanently."""
        self.pause()
        with self._returned:
            self._closed = True
            self._returned.notify_all()


def _patience() -> Callable[[int], bool]:
    """Return a busy handler: short waits with jitter, and a time limit."""
    since_s = 0.0

    def wait(tries: int) -> bool:
        nonlocal since_s
        now_s = time.monotonic()
        if tries == 0:
            since_s = now_s
        if now_s - since_s > BUSY_S:
            return False
        time.sleep(random.uniform(0.0001, min(0.0005 * (tries + 1), 0.02)))  # noqa: S311
        return True

    return wait


# -- forks: every open database of the process --------------------------------------------------

_open_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_at_fork: list[Database] = []


def _before_fork() -> None:
    _at_fork[:] = sorted(_open_databases, key=id)
    for database in _at_fork:
        database.before_fork()


def _after_fork_in_parent() -> None:
    for database in _at_fork:
        database.after_fork(in_child=False)
    _at_fork.clear()


def _after_fork_in_child() -> None:
    for database in _at_fork:
        database.after_fork(in_child=True)
    _at_fork.clear()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=_after_fork_in_parent,
    after_in_child=_after_fork_in_child,
)


def _numbers(fetch: Callable[[str, Any], list[Any]]) -> Iterator[Damage]:
    """Check the row of the store, and that every assigned run number exists."""
    try:
        row = row_codec.store_row(fetch("store_row", ())[0])
        count, largest = fetch("count_runs", ())[0]
    except HoldfastError as error:
        yield finding(error)
    except IndexError:
        yield Damage("the row of the store", "it is not there")
    else:
        if (count, largest or 0) != (row.last_run_no, row.last_run_no):
            yield Damage(
                "the table runs", f"{row.last_run_no} runs were started, {count} are there"
            )


def _in_sql(values: Any) -> Any:
    """Return the values of a statement with lists as JSON, for `json_each`."""
    if type(values) is dict:
        named = cast("dict[str, Any]", values)
        return {
            name: _json(value) if type(value) is list else value for name, value in named.items()
        }
    if list in map(type, values):
        return [_json(value) if type(value) is list else value for value in values]
    return values


def _json(values: Any) -> str:
    return msgspec.json.encode(values).decode()


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def sqlite_version() -> tuple[int, ...]:
    """Return the version of the SQLite library in apsw."""
    return tuple(int(part) for part in apsw.sqlite_lib_version().split("."))
