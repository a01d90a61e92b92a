"""Private folders that end with their process: each keeps the file of one `memory:` store.

A folder is removed with its last handle, and at exit. A process that is killed removes nothing, but
the kernel releases the lock (flock) that it held on the folder: the next process that makes such a
folder removes those that nobody locks. A forked process shares the lock of its parent, and removes
no folder of it.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import threading
import weakref

from holdfast._stores.addresses import full
from holdfast.errors import StoreUnusable

IN_MEMORY = "/dev/shm"  # noqa: S108
ROOM_BYTES = 256 << 20
"""With less room than this in memory (containers often have 64 MiB), a folder is on the disk."""
PREFIX = "holdfast-memory-"
FILE = "store.db"
"""The database; the names of its companions begin with it. No other file is ever removed."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class TemporaryFolder:
    """One folder, with the number of its handles."""

    def __init__(self) -> None:
        path, lock = _make(_base())
        self.file = os.path.join(path, FILE)
        self._count = 0
        self._counting = threading.Lock()
        self._removal = weakref.finalize(self, _remove, path, lock, os.getpid())
        self._removal.atexit = False  # Engines end first: see `remove_all`.
        _folders.add(self)

    def hold(self) -> None:
        """Count one more handle."""
        with self._counting:
            self._count += 1

    def release(self) -> None:
        """Count one handle less; the last one takes the folder with it."""
        with self._counting:
            self._count -= 1
            is_last = self._count == 0
        if is_last:
            self.remove()

    def remove(self) -> None:
        """Remove the folder, unless that was done or another process made it."""
        removal = self._removal.detach()  # Calling it would do nothing once the process ends.
        if removal is not None:
            _remove(*removal[2])


_folders: weakref.WeakSet[TemporaryFolder] = weakref.WeakSet()
_swept: set[tuple[int, str]] = set()
"""Where this process has looked for folders that nobody locks. A forked one looks for itself: else
what its dead siblings left would stay for as long as their parent lives."""


def remove_all() -> None:
    """Remove the folders of stores that nobody closed: the process ends."""
    for folder in list(_folders):
        folder.remove()


def _base() -> str:
    """Return where folders are made: in memory if there is room, else where temporary files are."""
    if os.access(IN_MEMORY, os.W_OK | os.X_OK):
        room = os.statvfs(IN_MEMORY)
        if room.f_bavail * room.f_frsize >= ROOM_BYTES:
            return IN_MEMORY
    import tempfile

    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        raise StoreUnusable(
            f"memory: {error.strerror}; set TMPDIR to a folder that this user may write to"
        ) from error


def _make(base: str) -> tuple[str, int]:
    """Make a folder that only we may read, and lock it; return its path and the lock."""
    looked = os.getpid(), base
    if looked not in _swept:
        _swept.add(looked)
        _sweep(base)
    while True:
        path = os.path.join(base, PREFIX + os.urandom(8).hex())
        try:
            os.mkdir(path, 0o700)
            lock = os.open(path, _FOLDER)
        except (FileExistsError, FileNotFoundError) as error:
            if not os.path.isdir(base):
                raise StoreUnusable(f"memory: {base} is no folder; set TMPDIR") from error
            continue  # Somebody took it for one that a dead process left.
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT}:
                raise full(base) from error
            raise StoreUnusable(
                f"memory: no folder can be made in {base} ({error.strerror}); set TMPDIR to one "
                "that this user may write to"
            ) from error
        if _locked(lock) and os.path.isdir(path):
            return path, lock
        os.close(lock)


def _locked(folder: int) -> bool:
    """Lock a folder; False if another process has locked it."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # Without locks here nobody can tell, and so nobody sweeps.
    return True


def _sweep(base: str) -> None:
    """Remove the folders of processes that were killed."""
    with contextlib.suppress(OSError):
        for name in os.listdir(base):
            if name.startswith(PREFIX):
                with contextlib.suppress(OSError):
                    _sweep_one(os.path.join(base, name))


def _sweep_one(path: str) -> None:
    folder = os.open(path, _FOLDER)
    try:
        if os.fstat(folder).st_uid == os.geteuid():
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _empty(path, folder)
    finally:
        os.close(folder)


def _remove(path: str, lock: int, pid: int) -> None:
    try:
        if os.getpid() == pid:
            with contextlib.suppress(OSError):
                _empty(path, lock)
    finally:
        os.close(lock)


def _empty(path: str, folder: int) -> None:
    for name in os.listdir(folder):
        if name.startswith(FILE):
            os.unlink(name, dir_fd=folder)
    os.rmdir(path)
