"""Time, randomness and threads: what the runtime uses instead of `time`, `random` and `threading`."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol

AT_MOST_S = 60.0
"""After which a long wait looks at the time again."""
START_S = 60.0
"""How long a thread may take until it begins."""


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


class _Begun(threading.Event):
    """Whether a thread has begun. Who starts it waits for that, but not for ever."""

    def wait(self, timeout: float | None = None) -> bool:
        """Return once it has begun; raise what `start` raises if there can be no thread."""
        if super().wait(START_S if timeout is None else timeout):
            return True
        raise RuntimeError("can't start new thread: it was made, and did not begin")


class Thread(threading.Thread):
    """A thread that does not end with the process, and whose start returns or raises.

    After a MemoryError a thread may be made and die before it says that it has begun. `start` of the
    standard library waits for that without a limit.
    """

    def __init__(
        self, target: Callable[..., object], name: str, args: tuple[Any, ...] = ()
    ) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)
        self._started = _Begun()
        self._refused = False

    def start(self) -> None:
        """Start it; raise RuntimeError if it does not begin."""
        try:
            super().start()
        except RuntimeError:
            self._refused = True
            raise

    def run(self) -> None:
        """Do its work, unless its start was given up before it began."""
        if not self._refused:
            super().run()
