"""Time and randomness as parameters: what the runtime asks instead of `time` and `random`."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from typing import Any, Protocol

AT_MOST_S = 60.0
"""After which a long wait looks at the time again."""


class Clock(Protocol):
    """Where the runtime gets its time from; tests replace it."""

    def now_us(self) -> int:
        """Return microseconds since 1970."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set (True) or the time has passed (False)."""
        ...

    async def wait_async(self, seconds: float, event: Any = None) -> None:
        """Wait in an event loop, until the time has passed or an asyncio event is set."""
        ...


class SystemClock:
    """The machine's own clock."""

    def now_us(self) -> int:
        """Return microseconds since 1970."""
        return time.time_ns() // 1000

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set (True) or the time has passed (False); at most a minute, as
        somebody may set the clock."""
        return event.wait(min(max(0.0, seconds), AT_MOST_S))

    async def wait_async(self, seconds: float, event: Any = None) -> None:
        """Wait in an event loop, until the time has passed or an asyncio event is set."""
        import asyncio

        pause_s = min(max(0.0, seconds), AT_MOST_S)
        if event is None:
            await asyncio.sleep(pause_s)
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(event.wait(), pause_s)


CHANCE = random.Random()  # noqa: S311 - jitter, not a secret
