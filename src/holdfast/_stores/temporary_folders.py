"""Private temporary folders: each contains the file of one `memory:` store.

A folder is removed with its last handle, and at exit. A killed process removes nothing, but the
kernel releases its lock (flock) on the folder: the next process that creates such a folder removes
the unlocked ones. A forked process shares the lock of its parent, and removes no folder of the
parent.
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
"""The free memory below which a folder is created on disk (containers often have 64 MiB)."""
PREFIX = "holdfast-memory-"
FILE = "store.db"
"""The name of the database; the names of its companion files begin with it. No other file is ever
removed."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class TemporaryFolder:
    """One folder, with the number of its handles."""

    def __init__(self) -> None:
        path, lock = _make(_base())
        self.file = os.path.join(path, FILE)
        self._count = 0
        self._counting = threading.Lock()
        self._removal = weakref.finalize(self, _remove, path, lock, os.getpid())
        self._removal.atexit = False  # Engines must end first: see `remove_all`.
        _folders.add(self)

    def hold(self) -> None:
        """Count one more handle."""
        with self._counting:
            self._count += 1

    def release(self) -> None:
        """Count one handle less; remove the folder with the last one."""
        with self._counting:
            self._count -= 1
            is_last = self._count == 0
        if is_last:
            self.remove()

    def remove(self) -> None:
        """Remove the folder, unless it is removed or another process created it."""
        removal = self._removal.detach()  # A call of the finalizer would do nothing at exit.
        if removal is not None:
            _remove(*removal[2])


_folders: weakref.WeakSet[TemporaryFolder] = weakref.WeakSet()
_swept: set[tuple[int, str]] = set()
"""The places that this process has searched for unlocked folders. A forked process searches again:
otherwise the folders of its dead siblings would stay as long as their parent lives."""


def remove_all() -> None:
    """Remove the folders of unclosed stores at exit."""
    for folder in list(_folders):
        folder.remove()


def _base() -> str:
    """Return the place for folders: in memory if there is room, otherwise the folder for temporary
    files."""
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
    """Create a folder that only this user can read, and lock it; return its path and the lock."""
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
            continue  # Another process treated it as one of a dead process.
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
    """Lock a folder; return False if another process has locked it."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # Without locks, no process can tell, so none removes folders.
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
