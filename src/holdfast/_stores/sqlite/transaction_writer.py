"""The writer of a handle: all its commits, one transaction after another.

    begin ── the work ── the row of the store (counter, head, clock) ── commit ── witness

The counter and the chained head of commits are in one row that each transaction changes under a
guard. So a handle notices commits of other processes (it reads the row again), and a file that was
replaced by an older one (it stops).

After an I/O error the handle acknowledges nothing more (I17); `_dead` has the reason.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

import apsw
import msgspec

from holdfast._engine.journal.rows import SEQ_BITS, Applied, RunRow
from holdfast._engine.values.digest import seal
from holdfast._stores import lookups, row_codec, schema_versions
from holdfast._stores.row_codec import StoreRow
from holdfast._stores.sqlite.apsw_types import Connection
from holdfast._stores.sqlite.filesystem import open_companion
from holdfast._stores.sqlite.sqlite_database import SAFE_VERSION, Database, Q, sqlite_version
from holdfast._stores.sqlite.sqlite_errors import is_fatal, translated
from holdfast._stores.sqlite.sqlite_open import next_incarnation
from holdfast._stores.sqlite.witness_file import Witness
from holdfast._stores.store_clock import StoreClock
from holdfast.errors import (
    Corrupt,
    HoldfastError,
    StoreFailed,
    StoreFull,
    StoreUnusable,
    UsageError,
)

log = logging.getLogger("holdfast.store")

CHECKPOINT_PAGES = 1000
ALARM_PAGES = 16 * CHECKPOINT_PAGES
LOOK_EVERY_S = 0.2
"""How often the path is compared with the open file."""
RESERVE_BYTES = 2 << 20

T = TypeVar("T")

_BEGIN, _COMMIT = Q["begin"], Q["commit"]
_STORE_ADVANCED = Q["store_advanced"]


class Changed(NamedTuple):
    """The result of a transaction: digests of rows, and numbers in the row of the store."""

    digests: bytes
    numbers: Mapping[str, int] = MappingProxyType({})


class Writer:
    """The writing side of one handle."""

    def __init__(
        self, database: Database, witness: Witness, clock: StoreClock, *, read_only: bool
    ) -> None:
        self.database = database
        self.witness = witness
        self.row: StoreRow
        self.regression: str | None = None
        self._clock = clock
        self.now_us = clock.now_us
        """The store's time; it never runs backwards and never stands still."""
        self._read_only = read_only
        self._looked_s = 0.0
        self._dead: HoldfastError | None = None
        self._alarmed = False
        self._side_lock = (
            None if sqlite_version() >= SAFE_VERSION else f"{database.path}-write.lock"
        )

    @property
    def last_run_no(self) -> int:
        """The largest assigned run number."""
        return self.row.last_run_no

    # -- time ----------------------------------------------------------------------------------

    def take_up(self, row: StoreRow) -> None:
        """Continue from this row of the store."""
        self.row = row
        if row.clock_us > self.now_us():  # Committed by a process whose clock was ahead.
            self._clock.not_before(row.clock_us)
            self.follow_clock()

    def follow_clock(self) -> None:
        """Synchronize with the processes that have committed to this file since the machine
        started."""
        slot = self.witness.read()
        if slot is not None and slot.anchor is not None and slot.store_id == self.row.store_id:
            self._clock.follow(slot.anchor)

    # -- transactions --------------------------------------------------------------------------

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Do work in one transaction. If it changed nothing, nothing is committed."""
        with self.database.lock:
            tx = Transaction(self, self.begin())
            try:
                self.refresh(tx.connection)
                result = work(tx)
                if tx.is_dirty:
                    self.finish(tx.connection, Changed(b"".join(tx.digests), tx.numbers))
                else:
                    tx.connection.execute(Q["rollback"])
                return result
            except BaseException as error:
                ours = self.abandoned(tx.connection, error)
                if ours is error:
                    raise
                raise ours from error
            finally:
                self.unlock_side()

    def beside(self, work: Callable[[Transaction], T]) -> T:
        """Do work in a transaction on rows that belong to no run: it is not counted, and no process
        is notified."""
        with self.database.lock:
            connection = self.begin()
            try:
                result = work(Transaction(self, connection))
                connection.execute(Q["commit"])
                return result
            except BaseException as error:
                ours = self.abandoned(connection, error)
                if ours is error:
                    raise
                raise ours from error
            finally:
                self.unlock_side()

    def begin(self) -> Connection:
        """Open a transaction; the caller holds the lock."""
        self._check_usable()
        connection = self.database.writer
        if connection.in_transaction:
            raise UsageError(
                f"{self.database.path} is being written to by a transactional effect of this "
                "thread; start, signal or change runs after it, not inside"
            )
        if self._side_lock is not None:
            self._lock_side(self._side_lock)
        try:
            connection.execute(_BEGIN)
        except apsw.Error as error:
            self.unlock_side()
            raise self._failed(error, connection.system_errno) from error
        return connection

    def finish(self, connection: Connection, changed: Changed, now_us: int | None = None) -> None:
        """Count the commit, commit, and write the witness. `now_us` is the time that the
        transaction has just read, if any."""
        if now_us is None:
            now_us = self.now_us()
        row = self._counted(changed, now_us)
        if not self._put(connection, row):
            self.refresh(connection)
            row = self._counted(changed, self.now_us())
            if not self._put(connection, row):
                raise Corrupt("the row of the store", why="it cannot be found by its counter")
        connection.execute(_COMMIT)
        self.row = row
        self.witness.write(row, self._clock.anchor(), lost=self.regression is not None)
        if self.database.wal_pages >= CHECKPOINT_PAGES:
            self._checkpoint(connection)

    def _counted(self, changed: Changed, now_us: int) -> StoreRow:
        row = msgspec.structs.replace(self.row, **changed.numbers)
        row.commits += 1
        row.clock_us = max(row.clock_us, now_us)
        row.head = seal(row.head, (row.commits, row.clock_us, changed.digests))
        return row.sealed()

    def _put(self, connection: Connection, row: StoreRow) -> bool:
        connection.execute(
            _STORE_ADVANCED,
            (
                row.commits,
                row.head,
                row.clock_us,
                row.last_run_no,
                row.last_owner,
                row.digest,
                row.commits - 1,
                row.incarnation,
            ),
        )
        return connection.changes() == 1

    def refresh(self, connection: Connection) -> None:
        """Read the row of the store again; refuse one that went back to an earlier state."""
        found = self.database.fetch(connection, "store_row")
        if not found:
            raise schema_versions.missing("the row of the store")
        fresh = row_codec.store_row(found[0])
        known = self.row
        if fresh.incarnation != known.incarnation or fresh.store_id != known.store_id:
            raise StoreFailed(
                f"{self.database.path} was restored, or its data loss was accepted, while it was "
                "open; open it again"
            )
        if fresh.commits < known.commits or (
            fresh.commits == known.commits and fresh.head != known.head
        ):
            raise StoreFailed(
                f"{self.database.path} went back to commit {fresh.commits} while it was open "
                f"(commit {known.commits} was acknowledged); open it again"
            )
        self.take_up(fresh)

    def abandoned(self, connection: Connection, error: BaseException) -> BaseException:
        """Roll back, and return the error to raise."""
        system_errno = connection.system_errno
        self.roll_back(connection)
        if isinstance(error, apsw.Error | UnicodeDecodeError | HoldfastError):
            return self._failed(error, system_errno)
        return error

    def roll_back(self, connection: Connection) -> None:
        """Roll back the open transaction, if any."""
        if connection.in_transaction:
            with contextlib.suppress(apsw.Error):
                connection.execute(Q["rollback"])

    def _failed(self, error: Exception, system_errno: int) -> Exception:
        ours = error
        if not isinstance(error, HoldfastError):
            ours = translated(error, self.database.path, system_errno)
        if isinstance(ours, HoldfastError) and is_fatal(ours):
            self._dead = ours
        return ours

    def accept_data_loss(self, actor: str, accepted: str) -> None:
        """Accept the current state of the store: begin a new incarnation, with a matching
        witness."""
        with self.database.lock:
            connection = self.begin()
            try:
                self.refresh(connection)
                slot = self.witness.read()
                known = slot.commits if slot is not None else 0
                row = next_incarnation(connection, self.row, known, actor, accepted)
                connection.execute(Q["commit"])
                self.row = row
                self.regression = None
                self.witness.create(row)
            except BaseException as error:
                ours = self.abandoned(connection, error)
                if ours is error:
                    raise
                raise ours from error
            finally:
                self.unlock_side()

    # -- the handle ----------------------------------------------------------------------------

    def _check_usable(self) -> None:
        self.database.check_process()
        if self._dead is not None:
            raise StoreFailed(f"this handle is dead since: {self._dead}")
        if self._read_only:
            raise StoreUnusable(
                f"{self.database.path} is open for reading only; to write, open it without ?mode=ro"
            )
        now_s = time.monotonic()
        if now_s - self._looked_s > LOOK_EVERY_S:
            self._looked_s = now_s
            self._check_same_file()

    def _check_same_file(self) -> None:
        try:
            self.database.check_same_file()
        except StoreFailed as gone:
            self._dead = gone
            raise

    def _checkpoint(self, connection: Connection) -> None:
        """Copy the WAL into the file. Done here, because SQLite hides a failed sync."""
        try:
            connection.execute(Q["checkpoint"]).fetchall()
        except apsw.BusyError:
            pass
        except apsw.Error as error:
            # The previous commit is durable in the WAL; later ones are not acknowledged.
            failed = self._failed(error, connection.system_errno)
            if not isinstance(failed, StoreFull):
                log.exception("checkpoint of %s failed", self.database.path)
            return
        self._alarm()

    def _alarm(self) -> None:
        grown = self.database.wal_pages > ALARM_PAGES
        if grown and not self._alarmed:
            log.warning(
                "%s-wal has grown to %d pages: a reader stays in an old state; which process is it?",
                self.database.path,
                self.database.wal_pages,
            )
        self._alarmed = grown

    # -- the side lock for an old SQLite -------------------------------------------------------

    _side_handle: int | None = None

    def _lock_side(self, path: str) -> None:
        self._side_handle = open_companion(path, create=True)
        assert self._side_handle is not None
        fcntl.flock(self._side_handle, fcntl.LOCK_EX)

    def unlock_side(self) -> None:
        """Let the next process write (only for SQLite versions with the WAL bug)."""
        handle, self._side_handle = self._side_handle, None
        if handle is not None:
            os.close(handle)


class Transaction:
    """One transaction of `Writer.transact`. SQLite allows one writer at a time, so the transaction
    needs no locks, and it is never repeated."""

    __slots__ = ("_writer", "connection", "digests", "is_dirty", "numbers")
    tries: int = 0

    def __init__(self, writer: Writer, connection: Connection) -> None:
        self._writer = writer
        self.connection = connection
        self.digests: list[bytes] = []
        self.numbers: dict[str, int] = {}
        self.is_dirty = False

    def fetch(self, name: str, values: Any = ()) -> list[Any]:
        """Run a statement and return its rows."""
        return self._writer.database.fetch(self.connection, name, values)

    def change(self, name: str, values: Any = ()) -> int:
        """Run a statement and return how many rows it changed."""
        self.is_dirty = True
        self.connection.execute(Q[name], values)
        return self.connection.changes()

    def change_all(self, statements: Sequence[tuple[str, Any]]) -> None:
        """Run several statements, in order."""
        for name, values in statements:
            self.change(name, values)

    def lock(self, *names: tuple[str, ...]) -> None:
        """Do nothing: the whole file is locked."""

    def lock_row(self, name: str, values: Any) -> None:
        """Do nothing: the whole file is locked."""

    def locked_run(self, namespace: str, run_id: str) -> RunRow | None:
        """Return the verified row of a run."""
        return lookups.find_run(self.fetch, namespace, run_id)

    def run_numbers(self, count: int) -> list[int]:
        """Return numbers for new runs, all of which must be used: a missing number is damage."""
        last = self.numbers.get("last_run_no", self._writer.row.last_run_no)
        self.numbers["last_run_no"] = last + count
        return list(range(last + 1, last + 1 + count))

    def add_run(self, made: Applied, chunks: Sequence[tuple[int, bytes]]) -> bool:
        """Insert a run whose absence was checked in this transaction, with its entries and
        chunks."""
        self.change("add_run", row_codec.run_values(made.row))
        self._add_entries(made)
        for number, body in chunks:
            digest = row_codec.chunk_digest(made.row.run_no, number, body)
            self.change("add_chunk", (made.row.run_no << SEQ_BITS | number, digest, body))
        return True

    def put_run(self, was: RunRow, made: Applied) -> None:
        """Change the row of a run that was read in this transaction, and insert entries."""
        guard = (was.run_no, was.epoch, was.last_seq, was.digest)
        changed = self.change("run_moved", row_codec.moved_values(made.row) + guard)
        assert changed == 1, "the row was read in this transaction"
        self._add_entries(made)

    def _add_entries(self, made: Applied) -> None:
        for entry in made.entries:
            self.change("add_entry", row_codec.entry_values(made.row.run_no, entry))

    def changed(self, digest: bytes = b"", row: RunRow | None = None) -> None:
        """Add a digest to the chain of commits; the commit wakes waiting threads."""
        del row
        self.digests.append(digest)


class Reserve:
    """Disk space reserved for outcomes of effects that have already happened."""

    def __init__(self, path: str) -> None:
        self._path = path

    def fill(self) -> None:
        """Reserve the space if there is room."""
        handle: int | None = None
        try:
            handle = open_companion(self._path, create=True)
            if handle is not None and os.fstat(handle).st_size < RESERVE_BYTES:
                os.posix_fallocate(handle, 0, RESERVE_BYTES)
        except (OSError, StoreUnusable):
            with contextlib.suppress(OSError):
                os.unlink(self._path)
        finally:
            if handle is not None:
                os.close(handle)

    def free(self) -> bool:
        """Release the space; return whether there was any."""
        try:
            os.unlink(self._path)
        except OSError:
            return False
        return True
