"""The clock of the database, as it is known here: asked now and then, carried on in between by the
clock of this machine that counts from boot, so that no jump of the local time matters."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

RELIED_ON_US = 500_000
"""An answer of the database that took longer says little about its time."""


def since_boot_us() -> int:
    """Return the microseconds since the machine started, suspension included."""
    kind = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    return time.clock_gettime_ns(kind) // 1000


class DatabaseClock:
    """Never runs backwards. Tests may put a clock of their own in its place."""

    def __init__(self, injected: Callable[[], int] | None = None) -> None:
        self._injected = injected
        self._offset_us = 0
        self._floor_us = 0
        self._lock = threading.Lock()

    def has_forked(self) -> None:
        """In a forked child: whoever held the lock is not there."""
        self._lock = threading.Lock()

    def now_us(self) -> int:
        """Return the time of the database."""
        with self._lock:
            injected = self._injected
            now_us = since_boot_us() + self._offset_us if injected is None else injected()
            self._floor_us = max(self._floor_us, now_us)
            return self._floor_us

    def ask(self, database_us: Callable[[], int]) -> None:
        """Set the clock by what the database says; an answer that took long is not relied on."""
        before_us = since_boot_us()
        heard_us = database_us()
        took_us = since_boot_us() - before_us
        with self._lock:
            if self._offset_us == 0 or took_us <= RELIED_ON_US:
                self._offset_us = heard_us - before_us - took_us // 2

    def not_before(self, floor_us: int) -> None:
        """Never show an earlier time than this."""
        with self._lock:
            self._floor_us = max(self._floor_us, floor_us)
