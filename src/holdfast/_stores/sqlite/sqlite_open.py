"""Open a file: create or check it, compare it with its witness, begin an incarnation."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Generator

import apsw
import msgspec

from holdfast._engine.journal.rows import GENESIS
from holdfast._engine.values.digest import seal
from holdfast._stores import row_codec, schema_versions
from holdfast._stores.row_codec import StoreRow
from holdfast._stores.sqlite import filesystem, migrations
from holdfast._stores.sqlite.apsw_types import Connection
from holdfast._stores.sqlite.sqlite_database import Database, Q
from holdfast._stores.sqlite.witness_file import Slot, Witness, regression
from holdfast.errors import Corrupt, StoreLostData, StoreUnusable


class Opened(msgspec.Struct):
    """A readable store, and its data loss, if any."""

    row: StoreRow
    regression: str | None


def check_path(path: str, *, read_only: bool) -> None:
    """Refuse a path that cannot be a store, with a remedy; create the file if allowed."""
    exists = filesystem.check_file(path)
    if read_only:
        if not exists:
            raise filesystem.nothing_to_read(path)
        filesystem.check_readable(path)
    elif not exists:
        filesystem.create_file(path)
    else:
        filesystem.check_readable(path)
        for place in (path, os.path.dirname(path)):
            if not os.access(place, os.W_OK):
                raise StoreUnusable(
                    f"{place} cannot be written by this user, and a store writes to its file and "
                    f"beside it; make it writable, or open the store for reading: "
                    f"sqlite:///{path}?mode=ro"
                )


def copy_template(path: str) -> None:
    """Create a temporary file with its tables, unless another handle has created it."""
    if os.path.exists(path):
        return
    part = f"{path}-{uuid.uuid4().hex}"  # Others may open it at any moment: it must be complete, or missing.
    with open(part, "xb") as file:
        file.write(migrations.template())
    try:
        with contextlib.suppress(FileExistsError):
            os.link(part, path)
    finally:
        os.unlink(part)


def open_rows(database: Database, witness: Witness, *, read_only: bool) -> Opened:
    """Migrate the schema, and detect missing acknowledged commits."""
    with database.lock:
        connection = database.writer
        try:
            if not database.durable:
                _begin_temporary(database, connection, witness)
            slot, version, opened = _looked_at(database, connection, witness)
            if slot is None and opened is not None:
                # No witness, but commits; or another process created both after the first read.
                slot, version, opened = _looked_at(database, connection, witness)
            if opened is not None:
                return opened
            if version == 0 and slot is not None and slot.commits:
                raise StoreLostData(
                    f"{database.path} is empty, but {witness.path} knows of {slot.commits} commits: "
                    "the database or its -wal file was lost. Put it back, or restore a backup; to "
                    "begin a new store here, move the companion files away too"
                )
            if read_only:
                return _as_it_is(database, connection, version)
            return _prepared(database, connection, witness)
        except (apsw.Error, UnicodeDecodeError, MemoryError) as error:
            raise database.translated(error, connection) from error


def _begin_temporary(database: Database, connection: Connection, witness: Witness) -> None:
    """Initialize a store in a copy of the template, unless another handle has done so."""
    connection.execute(Q["begin"])
    try:
        if not database.fetch(connection, "store_row"):
            connection.execute(Q["add_store"], msgspec.structs.astuple(first_row()))
            witness.create(store_row(database, connection))
        connection.execute(Q["commit"])
    except BaseException:
        if connection.in_transaction:
            connection.execute(Q["rollback"])
        raise


def _looked_at(
    database: Database, connection: Connection, witness: Witness
) -> tuple[Slot | None, int, Opened | None]:
    """Return the witness, the version of the schema, and the row of a store with commits."""
    slot = (
        witness.read()
    )  # Before the database, so that it cannot be ahead of the database read next.
    with _one_moment(connection):  # Another process may be creating the tables now.
        version = migrations.version_of(connection, database.path)
        if version >= len(migrations.steps()):
            migrations.check_schema(connection, database.path)
            row = store_row(database, connection)
            if not row.is_copy and (slot is not None or row.commits):
                return slot, version, Opened(row, regression(row, slot, witness.path))
    return slot, version, None


@contextlib.contextmanager
def _one_moment(connection: Connection) -> Generator[None]:
    """Open a transaction whose reads all see one state of the file."""
    connection.execute(Q["begin_reading"])
    try:
        yield
    finally:
        if connection.in_transaction:  # SQLite ends it itself when the disk fails.
            connection.execute(Q["rollback"])


def store_row(database: Database, connection: Connection) -> StoreRow:
    """Return the verified row of the store."""
    found = database.fetch(connection, "store_row")
    if len(found) != 1:
        raise schema_versions.missing("the row of the store")
    try:
        return row_codec.store_row(found[0])
    except Corrupt as damage:
        raise Corrupt(damage.what, why=f"{damage.why}; {schema_versions.WAY_OUT}") from None


def _as_it_is(database: Database, connection: Connection, version: int) -> Opened:
    if version == 0:
        raise StoreUnusable(f"{database.path} is empty: there is nothing to read in it yet")
    if version < len(migrations.steps()):
        raise StoreUnusable(
            f"{database.path} has the older schema version {version}; open it once for writing"
        )
    return Opened(store_row(database, connection), None)


def _prepared(database: Database, connection: Connection, witness: Witness) -> Opened:
    """Create or migrate the tables, or begin the incarnation of a copy, in one transaction."""
    connection.execute(Q["begin"])
    try:
        version = migrations.version_of(connection, database.path)
        migrations.migrate(connection, version)
        if version == 0:
            connection.execute(Q["add_store"], msgspec.structs.astuple(first_row()))
        row = store_row(database, connection)
        slot = witness.read()
        if row.is_copy:
            row = next_incarnation(connection, row, slot.commits if slot else 0, "", "a backup")
        if row.commits == 0 or not slot or slot.incarnation < row.incarnation:
            witness.create(row)
            slot = witness.read()
        connection.execute(Q["commit"])
    except BaseException:
        if connection.in_transaction:
            connection.execute(Q["rollback"])
        raise
    # Use the witness from inside the transaction: others may have committed since.
    return Opened(row, regression(row, slot, witness.path))


def first_row() -> StoreRow:
    """Return the row of a new store."""
    return StoreRow(
        store_id=uuid.uuid4().hex,
        incarnation=1,
        commits=0,
        head=GENESIS,
        clock_us=0,
        last_run_no=0,
        last_owner=0,
        accepted_through=0,
        is_copy=0,
    ).sealed()


def next_incarnation(
    connection: Connection, row: StoreRow, known_commits: int, actor: str, accepted: str
) -> StoreRow:
    """Accept the current state of the store, and restart the count of commits."""
    row = msgspec.structs.replace(
        row,
        incarnation=row.incarnation + 1,
        commits=max(row.commits, known_commits) + 1,
        accepted_through=row.last_run_no,
        is_copy=0,
    )
    row.head = seal(row.head, (row.commits, row.clock_us, accepted))
    row.sealed()
    values = (row.incarnation, row.clock_us, actor, accepted)
    connection.execute(Q["put_store"], msgspec.structs.astuple(row))
    connection.execute(Q["add_incarnation"], (*values, seal(GENESIS, values)))
    return row
