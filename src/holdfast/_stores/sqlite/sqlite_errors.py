"""Translate errors of SQLite by code into errors of Holdfast, by what the caller does next."""

from __future__ import annotations

import errno
import os

import apsw

from holdfast._stores.addresses import full
from holdfast._stores.sqlite.filesystem import NO_SPACE, no_database
from holdfast.errors import (
    Corrupt,
    HoldfastError,
    StoreFailed,
    StoreUnusable,
)

BUSY_S = 10.0
"""How long a writer waits for another writer."""


def translated(error: Exception, path: str, system_errno: int = 0) -> HoldfastError:
    """Return the error of Holdfast for an error of SQLite."""
    if isinstance(error, apsw.FullError):
        return full(path)
    if isinstance(error, apsw.IOError):
        return full(path) if system_errno in NO_SPACE else _failed(error, path)
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreUnusable(
            f"{path} is locked by another process for more than {BUSY_S:.0f} s; is one stopped "
            f"in the middle of a write? find it: fuser {path}"
        )
    if isinstance(error, apsw.CantOpenError):
        return StoreUnusable(f"{path} cannot be opened ({error}); {_why(system_errno, path)}")
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError | apsw.AuthError):
        return StoreFailed(f"{path} cannot be written ({error}); make it writable, open it again")
    if isinstance(error, apsw.NotADBError):
        return no_database(path)
    if isinstance(error, apsw.NoMemError | MemoryError):
        return StoreFailed(f"{path}: out of memory; open the store again")
    return Corrupt(path, why=str(error))


def is_fatal(error: HoldfastError) -> bool:
    """Return whether a handle acknowledges nothing any more after this error (I17)."""
    return isinstance(error, StoreFailed)


def _failed(error: Exception, path: str) -> StoreFailed:
    return StoreFailed(
        f"{path}: {error}; nothing more is acknowledged here: look at the disk, open it again"
    )


def _why(system_errno: int, path: str) -> str:
    if system_errno in {errno.EMFILE, errno.ENFILE}:
        return "too many files are open in this process: raise `ulimit -n`"
    return (
        "this user must be able to read and write it, the files beside it and their folder: "
        f"ls -ld {path}* {os.path.dirname(path)}"
    )
