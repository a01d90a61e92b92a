"""Liveness of owners on this machine, proven without clocks and time-outs.

Every process that may own runs holds a lock on its own byte of `<database>-owners.lock`. The lock
belongs to the open file description (OFD): it ends with the process, is not lost when another
descriptor of the file is closed, and works across containers of one kernel. An unlocked byte, in
the file that the owner has recorded, proves a dead owner. Otherwise a process whose id and start
time no longer exist is dead, if boot and pid namespace are the same. In all other cases the lease
decides.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from holdfast._stores import row_codec
from holdfast._stores.lookups import Fetch
from holdfast._stores.row_codec import OwnerRow
from holdfast._stores.sqlite.filesystem import open_companion
from holdfast._stores.sqlite.transaction_writer import Transaction, Writer
from holdfast.errors import StoreUnusable

_FLOCK = struct.Struct("hhqqi4x")
_SET = getattr(fcntl, "F_OFD_SETLK", None)
_GET = getattr(fcntl, "F_OFD_GETLK", None)


class Locks:
    """The lock file, with one descriptor for holding and one for testing locks."""

    def __init__(self, path: str, *, trusted: bool) -> None:
        self.path = path
        self._trusted = trusted and _SET is not None and _GET is not None
        self._holding: int | None = None
        self._asking: int | None = None
        _open_locks.add(self)

    def hold(self, owner: int) -> bool:
        """Lock an owner's byte; return False if another process has locked it."""
        if not self._trusted:
            return True
        if self._holding is None:
            self._holding = open_companion(self.path, create=True)
        assert self._holding is not None
        assert _SET is not None
        try:
            fcntl.fcntl(self._holding, _SET, _lock(fcntl.F_WRLCK, owner))
        except BlockingIOError:
            return False
        except OSError as error:
            raise StoreUnusable(f"{self.path} cannot be locked: {error.strerror}") from error
        return True

    def inode(self) -> int:
        """Return the inode of the lock file, 0 if there is none."""
        try:
            return os.lstat(self.path).st_ino
        except OSError:
            return 0

    def held_inode(self) -> int:
        """Return the inode of the file with this process's lock, 0 if locks prove nothing here."""
        return 0 if self._holding is None else os.fstat(self._holding).st_ino

    def is_released(self, row: OwnerRow) -> bool:
        """Return whether the lock file proves that an owner is dead."""
        if not self._trusted or not row.lock_inode:
            return False
        if self._asking is None:
            self._asking = open_companion(self.path, create=False)
        if self._asking is None:
            return False
        asked = os.fstat(self._asking)
        if asked.st_ino != row.lock_inode or self.inode() != asked.st_ino:
            self._forget_asking()
            return False
        assert _GET is not None
        answer = fcntl.fcntl(self._asking, _GET, _lock(fcntl.F_WRLCK, row.owner))
        kind = _FLOCK.unpack(answer)[0]
        return bool(kind == fcntl.F_UNLCK)

    def _forget_asking(self) -> None:
        handle, self._asking = self._asking, None
        if handle is not None:
            os.close(handle)

    def keep(self) -> None:
        """Hold the locks until the process ends, because code of runs still executes."""
        self._forget_asking()
        _kept.append(self)

    def close(self) -> None:
        """Release the locks: from now on other processes see this owner as dead."""
        self._forget_asking()
        handle, self._holding = self._holding, None
        if handle is not None:
            os.close(handle)


def _lock(kind: int, owner: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, owner, 1, 0)


class Owners:
    """The owners of one store, for one handle."""

    def __init__(self, writer: Writer, locks: Locks) -> None:
        self._writer = writer
        self._read = writer.database.read
        self._locks = locks
        self._pid = os.getpid()
        self._own: set[int] = set()
        self._dead: set[int] = set()

    def register(self) -> int:
        """Register this process as an owner."""
        if self._pid != os.getpid():
            self._pid = os.getpid()
            self._own.clear()

        def work(tx: Transaction) -> int:
            owner = self._writer.row.last_owner + 1
            while not self._locks.hold(owner):
                owner += 1  # Assigned before the database went back to an earlier state.
            row = describe(owner, self._locks.held_inode(), self._writer.now_us())
            tx.change("add_owner", msgspec.structs.astuple(row))
            tx.numbers["last_owner"] = owner
            tx.changed(row.digest)
            return owner

        owner = self._writer.transact(work)
        self._own.add(owner)
        return owner

    def is_dead(self, owner: int, fetch: Fetch | None = None) -> bool:
        """Return whether an owner is proven dead."""
        if owner in self._dead:
            return True
        if owner in self._own and self._pid == os.getpid():
            return False
        row = self._row(owner, fetch)
        dead = row is not None and (self._locks.is_released(row) or is_gone(row))
        if dead:
            self._dead.add(owner)
        return dead

    def pulse_until_us(self, owner: int, fetch: Fetch | None = None) -> int:
        """Return the expiry of an owner's pulse, or 0."""
        found = (fetch or self._read)("pulse_of", (owner,))
        return int(found[0][0]) if found else 0

    def not_alive(self, pulses: Iterable[Sequence[Any]], at_us: int) -> tuple[list[int], list[int]]:
        """Return the dead owners of these pulses, and those whose pulse has expired."""
        dead: list[int] = []
        late: list[int] = []
        for owner, until_us in pulses:
            if isinstance(owner, int) and self.is_dead(owner):  # A damaged row may have any value.
                dead.append(owner)
            elif until_us <= at_us:
                late.append(owner)
        return dead, late

    def name(self, owner: int | None, fetch: Fetch | None = None) -> str:
        """Describe an owner for people."""
        if owner is None:
            return "nobody"
        row = self._row(owner, fetch)
        return f"owner {owner}" if row is None else f"process {row.pid} on {row.host}"

    def _row(self, owner: int, fetch: Fetch | None = None) -> OwnerRow | None:
        found = (fetch or self._read)("owner_row", (owner,))
        return row_codec.owner_row(found[0]) if found else None


# -- the description of a process ---------------------------------------------------------------


def describe(owner: int, lock_inode: int, registered_us: int) -> OwnerRow:
    """Return the row that describes this process."""
    pid = os.getpid()
    started = ""  # Unknown: then only the lock or the lease shows the end of this process.
    with contextlib.suppress(OSError):
        started = _start_time(pid) or ""
    return OwnerRow(
        owner=owner,
        pid=pid,
        started=started,
        boot_id=_boot_id(),
        pid_namespace=_pid_namespace(),
        host=socket.gethostname(),
        lock_inode=lock_inode,
        registered_us=registered_us,
    ).sealed()


def is_gone(row: OwnerRow) -> bool:
    """Return whether the process that a row describes is gone, if that can be determined from
    here."""
    if not row.started or not row.boot_id or not row.pid_namespace:
        return False
    if (row.boot_id, row.pid_namespace) != (_boot_id(), _pid_namespace()):
        return False
    try:
        return _start_time(row.pid) != row.started and Path("/proc/self/stat").exists()
    except OSError:
        return False


def _start_time(pid: int) -> str | None:
    """Return the start time of a process, in ticks since boot; None if it does not exist or is a
    zombie. Any other error (too many open files, no permission) proves nothing and is raised."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if fields[0] in {"Z", "X"} else fields[19]


def _boot_id() -> str:
    with contextlib.suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    return ""


def _pid_namespace() -> int:
    with contextlib.suppress(OSError):
        return os.stat("/proc/self/ns/pid").st_ino
    return 0


# -- forks: a child must not keep its parent alive ------------------------------------------------

_open_locks: weakref.WeakSet[Locks] = weakref.WeakSet()
_kept: list[Locks] = []


def _after_fork_in_child() -> None:
    for locks in list(_open_locks):
        locks.close()


os.register_at_fork(after_in_child=_after_fork_in_child)
