"""Time and randomness as parameters: what the runtime asks instead of `time` and `random`."""

from __future__ import annotations

import random
import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Where the runtime gets its time from; tests replace it."""

    def now_us(self) -> int:
        """Return microseconds since 1970."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set (True) or the time has passed (False)."""
        ...

    async def wait_async(self, seconds: float) -> None:
        """Wait in an event loop."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_us(self) -> int:
        """Return microseconds since 1970."""
        return time.time_ns() // 1000

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set (True) or the time has passed (False)."""
        return event.wait(max(0.0, seconds))

    async def wait_async(self, seconds: float) -> None:
        """Wait in an event loop."""
        import asyncio

        await asyncio.sleep(max(0.0, seconds))


CHANCE = random.Random()  # noqa: S311 - jitter, not a secret
