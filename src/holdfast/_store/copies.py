"""Backup and restore. A copy is marked as one: opened, it begins a new incarnation, because what
was committed after it was made may have happened all the same."""

from __future__ import annotations

import contextlib
import os

import apsw
import msgspec

from holdfast._store import filesystem, records
from holdfast._store.connections import Connection, connect, copy_pages
from holdfast._store.database import Database, Q
from holdfast.errors import StoreFailed, StoreUnusable

COMPANIONS = ("-wal", "-shm", "-witness", "-owners.lock", "-reserve")


def backup(database: Database, path: str) -> None:
    """Write a consistent copy of an open store to a new file."""
    target = _new_file(path)
    source = database.another()
    try:
        _copy(source, target)
    except apsw.Error as error:
        raise database.translated(error) from error
    finally:
        source.close()


def restore(backup_path: str, target_path: str) -> None:
    """Put a backup, or any old copy of a store, where a store is to be. Opened there, effects
    without an intent, in runs that it knows, go through doubt first."""
    source_path = filesystem.resolved(backup_path)
    if not filesystem.check_file(source_path):
        raise StoreUnusable(f"there is no backup at {source_path}")
    target = _new_file(target_path)
    try:
        source = connect(source_path, apsw.SQLITE_OPEN_READWRITE)
        try:
            _copy(source, target)
        finally:
            source.close()
    except apsw.Error as error:
        raise StoreUnusable(f"{source_path} cannot be restored: {error}") from error


def _new_file(path: str) -> str:
    """Return the path of a file that is not there yet, nor anything that belongs to one."""
    target = filesystem.resolved(path)
    for name in (target, *(target + suffix for suffix in COMPANIONS)):
        if os.path.lexists(name):
            raise StoreUnusable(f"{name} exists already; give a new path, or move it away")
    return target


def _copy(source: Connection, target: str) -> None:
    """Copy all pages, mark the copy, and put it in place only when it is complete."""
    part = target + ".part"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(part)
    filesystem.create_file(part)
    try:
        copy = connect(part, apsw.SQLITE_OPEN_READWRITE)
        try:
            copy_pages(source, copy)
            _mark(copy, part)
        finally:
            copy.close()
        _sync(part)
        os.link(part, target)  # Unlike a rename, it refuses to replace what came there meanwhile.
    finally:
        os.unlink(part)
    _sync(os.path.dirname(target))


def _mark(copy: Connection, path: str) -> None:
    copy.execute(Q["rollback_journal"]).fetchall()
    found = copy.execute(Q["store_row"]).fetchall()
    if len(found) != 1:
        raise StoreUnusable(f"{path} is a copy of something that is not a store")
    row = records.store_row(found[0])
    row.is_copy = 1
    copy.execute(Q["put_store"], msgspec.structs.astuple(row.sealed()))


def _sync(path: str) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        raise StoreFailed(f"{path} cannot be synced: {error.strerror}") from error
    finally:
        os.close(handle)
