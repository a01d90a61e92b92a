"""The clock of a store: it never goes back and never stands still, whatever the clock skew of a machine.

It continues from the largest time ever committed, at the pace of this machine's clock since boot,
suspension included. A reference (the time of this machine; on a server, that of the database) may only
move it forward. So one commit from a machine whose time was ahead moves the clock ahead for good.

All processes that share a file count from the same boot: an `Anchor` beside the file says which time
of the store belongs to which count, so that a process that opens it later agrees with the others.
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
"""A clock that is ahead of its reference by less than this runs slower by a tenth until they meet:
that is an error of measurement, or another pace. If it is ahead by more, somebody set a clock back."""
RELIED_ON_US = 500_000
"""An answer of the database that took longer says little about its time."""
BOOT_BYTES = 8
_FROM_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def system_clock_us() -> int:
    """Return the time of this machine, in microseconds since 1970."""
    return time.time_ns() // 1000


def since_boot_us() -> int:
    """Return the microseconds since the machine started, suspension included."""
    return time.clock_gettime_ns(_FROM_BOOT) // 1000


class Anchor(NamedTuple):
    """A time of the store, and the count of a machine that belongs to it."""

    at_us: int
    counted_us: int
    boot: bytes
    """Which count it is: of this boot, in this time namespace. Empty if nobody can tell."""


@cache
def this_boot() -> bytes:
    """Return what is the same in two processes exactly if they count from the same boot."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_bytes()
    except OSError:
        return b""
    with contextlib.suppress(OSError):  # A kernel without time namespaces.
        boot += os.readlink("/proc/self/ns/time").encode()
    return hashlib.blake2b(boot, digest_size=BOOT_BYTES).digest()


class FakeMachine:
    """A machine of a simulation: its time can be set, and its count goes on."""

    def __init__(self, time_us: int) -> None:
        self.time_us = time_us
        self.counted_us = 0

    def __call__(self) -> int:
        """Return what its time says."""
        return self.time_us

    def passes(self, us: int) -> None:
        """Let time pass."""
        self.time_us += us
        self.counted_us += us


class StoreClock:
    """One handle's clock. Tests may put a time of their own in the place of the machine's."""

    def __init__(self, injected: Clock | None = None) -> None:
        self._reference_us = injected or self._reference()
        self._slews = injected is None
        self._count, self._boot = _count_of(injected)
        self._counted_us = self._count()
        self._at_us = 0
        self._lock = threading.Lock()

    def has_forked(self) -> None:
        """In a forked child: whoever held the lock is not there."""
        self._lock = threading.Lock()

    def now_us(self) -> int:
        """Return the time of the store."""
        with self._lock:
            return self._moved()

    def not_before(self, at_us: int) -> None:
        """Go on from this time, if it is later: somebody has committed it."""
        with self._lock:
            self._at_us = max(self._moved(), at_us)

    def anchor(self) -> Anchor:
        """Return a time and a count that belong together: those of the last look."""
        with self._lock:
            return Anchor(self._at_us, self._counted_us, self._boot)

    def follow(self, anchor: Anchor) -> None:
        """Agree with another process that counts from the same boot."""
        if self._boot and anchor.boot == self._boot:
            with self._lock:
                now_us = self._moved()
                passed_us = self._counted_us - anchor.counted_us
                if passed_us >= 0:
                    self._at_us = max(now_us, anchor.at_us + passed_us)

    def _moved(self) -> int:
        """Called several times for each step: few calls."""
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
    """The reference is the clock of the database: asked now and then, carried on in between by the
    count since boot, so that no jump of the local time matters."""

    _offset_us = 0

    def ask(self, database_us: Clock) -> None:
        """Hear what the database says; an answer that took long is not relied on."""
        before_us = since_boot_us()
        heard_us = database_us()
        took_us = since_boot_us() - before_us
        with self._lock:
            if self._offset_us == 0 or took_us <= RELIED_ON_US:
                self._offset_us = heard_us - before_us - took_us // 2

    def _reference(self) -> Clock:
        return lambda: self._counted_us + self._offset_us if self._offset_us else 0


def _count_of(injected: Clock | None) -> tuple[Clock, bytes]:
    """Return a count that only goes forward, and which one it is."""
    if injected is None:
        return since_boot_us, this_boot()
    if isinstance(injected, FakeMachine):
        return lambda: injected.counted_us, b"simulate"
    return _forward(injected), b""


def _forward(clock: Clock) -> Clock:
    """Return how much a time that tests move has gone forward: a jump back takes nothing away."""
    last_us = clock()
    total_us = 0

    def counted() -> int:
        nonlocal last_us, total_us
        now_us = clock()
        total_us += max(0, now_us - last_us)
        last_us = now_us
        return total_us

    return counted
