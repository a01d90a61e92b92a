"""Backup and restore. A copy is marked: when it is opened, it begins a new incarnation, because
effects that were committed after the copy may have happened."""

from __future__ import annotations

import contextlib
import os

import apsw
import msgspec

from holdfast._stores import row_codec
from holdfast._stores.addresses import full
from holdfast._stores.contract import Progress, no_progress
from holdfast._stores.sqlite import filesystem, migrations
from holdfast._stores.sqlite.apsw_types import Connection, connect, copy_pages
from holdfast._stores.sqlite.sqlite_database import Database, Q
from holdfast.errors import StoreUnusable

COMPANIONS = ("-wal", "-shm", "-witness", "-owners.lock", "-reserve")


def backup(database: Database, path: str, progress: Progress = no_progress) -> None:
    """Write a consistent copy of an open store to a new file."""
    target = _new_file(path)
    source = database.another()
    try:
        _copy(source, target, progress)
    except apsw.Error as error:
        raise database.translated(error) from error
    finally:
        source.close()


def restore(backup_path: str, target_path: str) -> None:
    """Copy a backup, or any old copy of a store, to the path of a store. When it is opened there,
    effects without an intent, in its existing runs, go through doubt first."""
    source_path = filesystem.resolved(backup_path)
    if os.path.isfile(source_path) and not _is_database(source_path):
        raise StoreUnusable(
            f"{source_path} is no backup of a store and cannot be restored: it is no SQLite database; give a file that "
            "`holdfast store backup` wrote"
        )
    if not filesystem.check_file(source_path):
        raise StoreUnusable(f"there is no backup at {source_path}")
    target = _new_file(target_path)
    try:
        source = connect(source_path, apsw.SQLITE_OPEN_READWRITE)
        try:
            if migrations.check_ours(source, source_path) == 0:
                raise StoreUnusable(f"{source_path} is empty: it is no backup of a store")
            _copy(source, target, no_progress)
        finally:
            source.close()
    except apsw.Error as error:
        raise StoreUnusable(f"{source_path} cannot be restored: {error}") from error


def _is_database(path: str) -> bool:
    """Return whether SQLite accepts a file as a database. An unreadable file may be one.

    SQLite reads the file itself: opening and closing it here would drop the locks of a store that
    this process has open there.
    """
    try:
        connection = connect(path, apsw.SQLITE_OPEN_READONLY)
        try:
            connection.execute(Q["application_id"])
        finally:
            connection.close()
    except apsw.NotADBError:
        return False
    except apsw.Error:
        return True
    return True


def _new_file(path: str) -> str:
    """Return the path of a new file; refuse it if the file or a companion file exists."""
    target = filesystem.resolved(path)
    for name in (target, *(target + suffix for suffix in COMPANIONS)):
        if os.path.lexists(name):
            raise StoreUnusable(f"{name} exists already; give a new path, or move it away")
    return target


def _copy(source: Connection, target: str, progress: Progress) -> None:
    """Copy all pages, mark the copy, and put it in place only when it is complete."""
    part = target + ".part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part)
    filesystem.create_file(part)
    try:
        copy = connect(part, apsw.SQLITE_OPEN_READWRITE)
        try:
            copy_pages(source, copy, progress)
            _mark(copy, part)
        except (apsw.FullError, apsw.IOError) as error:
            if isinstance(error, apsw.FullError) or copy.system_errno in filesystem.NO_SPACE:
                raise full(
                    target
                ) from error  # The disk of the copy is full, not that of the store.
            raise
        finally:
            copy.close()
        filesystem.sync(part)
        os.link(part, target)  # Unlike a rename, a link never replaces a file.
    finally:
        os.unlink(part)
    filesystem.sync(os.path.dirname(target))


def _mark(copy: Connection, path: str) -> None:
    copy.execute(Q["rollback_journal"]).fetchall()
    found = copy.execute(Q["store_row"]).fetchall()
    if len(found) != 1:
        raise StoreUnusable(f"{path} is a copy of something that is not a store")
    row = row_codec.store_row(found[0])
    row.is_copy = 1
    copy.execute(Q["put_store"], msgspec.structs.astuple(row.sealed()))
