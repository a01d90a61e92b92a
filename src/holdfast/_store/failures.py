"""Errors of SQLite as errors of ours, told apart by code: what the caller does next."""

from __future__ import annotations

import errno

import apsw

from holdfast.errors import (
    Corrupt,
    HoldfastError,
    StoreFailed,
    StoreFull,
    StoreUnusable,
)

NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
BUSY_S = 10.0
"""How long a writer waits for another one."""


def translated(error: Exception, path: str, system_errno: int = 0) -> HoldfastError:
    """Return the error of ours that an error of SQLite means."""
    if isinstance(error, apsw.FullError):
        return _full(path)
    if isinstance(error, apsw.IOError):
        return _full(path) if system_errno in NO_SPACE else _failed(error, path)
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return StoreUnusable(
            f"{path} is locked by another process for more than {BUSY_S:.0f} s; is one stopped "
            f"in the middle of a write? find it: fuser {path}"
        )
    if isinstance(error, apsw.CantOpenError):
        return StoreUnusable(f"{path} cannot be opened ({error}); {_why(system_errno)}")
    if isinstance(error, apsw.ReadOnlyError | apsw.PermissionsError | apsw.AuthError):
        return StoreFailed(f"{path} cannot be written ({error}); make it writable, open it again")
    if isinstance(error, apsw.NotADBError):
        return StoreUnusable(
            f"{path} is not a database, or its first page is damaged; give another path, "
            "or restore a backup"
        )
    if isinstance(error, apsw.NoMemError | MemoryError):
        return StoreFailed(f"{path}: out of memory; open the store again")
    return Corrupt(path, why=str(error))


def is_fatal(error: HoldfastError) -> bool:
    """Tell whether a handle acknowledges nothing any more after this error (I17)."""
    return isinstance(error, StoreFailed)


def _full(path: str) -> StoreFull:
    return StoreFull(f"no space left for {path}; nothing recorded was lost: free some and go on")


def _failed(error: Exception, path: str) -> StoreFailed:
    return StoreFailed(
        f"{path}: {error}; nothing more is acknowledged here: look at the disk, open it again"
    )


def _why(system_errno: int) -> str:
    if system_errno in {errno.EMFILE, errno.ENFILE}:
        return "too many files are open in this process: raise `ulimit -n`"
    return "look at the permissions of the file and of its folder"
