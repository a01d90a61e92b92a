"""The clock of a store: it never goes back and never stands still, despite clock skew.

It continues from the largest committed time, at the pace of this machine's clock since boot,
including suspension. A reference (the time of this machine; on a server, that of the database) can
only move it forward. So one commit from a machine whose time was ahead moves the clock ahead
permanently.

All processes that share a file count from the same boot: an `Anchor` beside the file maps a count
to a time of the store, so that a process that opens it later agrees with the others.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

Clock = Callable[[], int]

SLEWED_US = 1_000_000
"""A clock that is ahead of its reference by less than this (a measurement error, or a different
pace) runs slower by a tenth until they meet. If it is ahead by more, a clock was set back."""
RELIED_ON_US = 500_000
"""The maximum duration of a database query whose time is used."""
BOOT_BYTES = 8
_FROM_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def system_clock_us() -> int:
    """Return the time of this machine, in microseconds since 1970."""
    return time.time_ns() // 1000


def since_boot_us() -> int:
    """Return the microseconds since the machine started, suspension included."""
    return time.clock_gettime_ns(_FROM_BOOT) // 1000


class Anchor(NamedTuple):
    """A time of the store, and the machine's count at that time."""

    at_us: int
    counted_us: int
    boot: bytes
    """The identity of the count: this boot, in this time namespace. Empty if unknown."""


@cache
def this_boot() -> bytes:
    """Return a value that is equal in two processes exactly if they count from the same boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return b""
    with contextlib.suppress(OSError):  # A kernel without time namespaces.
        boot += os.readlink("/proc/self/ns/time").encode()
    return hashlib.blake2b(boot, digest_size=BOOT_BYTES).digest()


class FakeMachine:
    """A simulated machine: its time can be set, and its count goes forward."""

    def __init__(self, time_us: int) -> None:
        self.time_us = time_us
        self.counted_us = 0

    def __call__(self) -> int:
        """Return its time."""
        return self.time_us

    def passes(self, us: int) -> None:
        """Advance the time."""
        self.time_us += us
        self.counted_us += us


class StoreClock:
    """One handle's clock. Tests can replace the machine's time."""

    def __init__(self, injected: Clock | None = None) -> None:
        self._reference_us = injected or self._reference()
        self._slews = injected is None
        self._count, self._boot = _count_of(injected)
        self._counted_us = self._count()
        self._at_us = 0
        self._lock = threading.Lock()

    def has_forked(self) -> None:
        """Reset the lock in a forked child: the thread that held it does not exist there."""
        self._lock = threading.Lock()

    def now_us(self) -> int:
        """Return the time of the store."""
        with self._lock:
            return self._moved()

    def not_before(self, at_us: int) -> None:
        """Continue from this committed time, if it is later."""
        with self._lock:
            self._at_us = max(self._moved(), at_us)

    def anchor(self) -> Anchor:
        """Return the time and the count of the last reading."""
        with self._lock:
            return Anchor(self._at_us, self._counted_us, self._boot)

    def follow(self, anchor: Anchor) -> None:
        """Synchronize with another process that counts from the same boot."""
        if self._boot and anchor.boot == self._boot:
            with self._lock:
                now_us = self._moved()
                passed_us = self._counted_us - anchor.counted_us
                if passed_us >= 0:
                    self._at_us = max(now_us, anchor.at_us + passed_us)

    def _moved(self) -> int:
        """Return the moved clock. Called several times for each step, so it makes few calls."""
        counted_us = self._count()
        passed_us = counted_us - self._counted_us
        at_us = self._at_us + passed_us
        self._counted_us = counted_us
        reference_us = self._reference_us()
        if self._slews and 0 < at_us - reference_us < SLEWED_US:
            at_us -= passed_us // 10
        self._at_us = at_us = max(reference_us, at_us)
        return at_us

    def _reference(self) -> Clock:
        """Return the clock that may move this one forward."""
        return system_clock_us


class DatabaseClock(StoreClock):
    """A clock with the database's time as reference: queried from time to time and continued with
    the count since boot, so that jumps of the local time do not matter."""

    _offset_us = 0

    def ask(self, database_us: Clock) -> None:
        """Query the database's time; ignore an answer that took long."""
        before_us = since_boot_us()
        heard_us = database_us()
        took_us = since_boot_us() - before_us
        with self._lock:
            if self._offset_us == 0 or took_us <= RELIED_ON_US:
                self._offset_us = heard_us - before_us - took_us // 2

    def _reference(self) -> Clock:
        return lambda: self._counted_us + self._offset_us if self._offset_us else 0


def _count_of(injected: Clock | None) -> tuple[Clock, bytes]:
    """Return a count that only goes forward, and its identity."""
    if injected is None:
        return since_boot_us, this_boot()
    if isinstance(injected, FakeMachine):
        return lambda: injected.counted_us, b"simulate"
    return _forward(injected), b""


def _forward(clock: Clock) -> Clock:
    """Return a count of a test's clock that ignores jumps back."""
    last_us = clock()
    total_us = 0

    def counted() -> int:
        nonlocal last_us, total_us
        now_us = clock()
        total_us += max(0, now_us - last_us)
        last_us = now_us
        return total_us

    return counted
