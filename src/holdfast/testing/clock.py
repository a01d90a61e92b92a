"""A clock that a test moves: it wakes the threads and tasks whose time has come.

    clock = FakeClock()
    with testing.store(clock=clock) as store:
        handle = flow.start("r-1")
        clock.advance_to_next()        # the pause before the next attempt is over

The runtime asks it for pauses (`wait_for_signal`, `wait_async`), a store for the time (`clock` itself can be
called). `FakeClock(auto=True)` is for code that nobody attends: a waiting thread moves it at once.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import threading
import time
from collections.abc import Callable, Generator
from typing import Any

from holdfast._engine.values.durations import Duration, seconds

START_US = 1_767_225_600_000_000
"""2026-01-01 in UTC, in microseconds: the default start of a fake clock."""

LOOK_S = 0.01
"""How often a sleeper checks its event in real time; the clock itself wakes it at once."""

PATIENCE_S = 10.0
"""How long in real time the clock waits for a sleeper before it reports that there is none."""


class FakeClock:
    """Time that stands still until a test moves it."""

    def __init__(self, start: dt.datetime | None = None, *, auto: bool = False) -> None:
        self._now_us = START_US if start is None else int(start.timestamp() * 1e6)
        self._auto = auto
        self._changed = threading.Condition()
        self._due: dict[int, int] = {}
        self._wakers: dict[int, Callable[[], None]] = {}
        self._last = 0

    def __call__(self) -> int:
        """Return microseconds since 1970, as a store needs them."""
        return self._now_us

    def __repr__(self) -> str:
        return f"<fake clock at {self.now.isoformat()}>"

    @property
    def now(self) -> dt.datetime:
        """The time, in UTC."""
        return dt.datetime.fromtimestamp(self._now_us / 1e6, dt.UTC)

    @property
    def sleepers(self) -> int:
        """How many threads and tasks wait for a time."""
        with self._changed:
            return len(self._due)

    # -- what tests do -------------------------------------------------------------------------

    def advance(self, duration: Duration) -> None:
        """Move the clock forward, by seconds, a timedelta or a string such as "2h", and wake the
        waiters that are due."""
        self.jump(seconds(duration, "advance(…), which goes forward (jump(…) is for faults)"))

    def jump(self, seconds: float) -> None:
        """Move the clock in any direction, like a bad time server."""
        with self._changed:
            self._move_to(self._now_us + round(seconds * 1e6))

    def advance_to_next(self, *, timeout_s: float = PATIENCE_S) -> float:
        """Move to the moment at which the next sleeper wakes; returns the seconds moved.

        If nobody sleeps yet, wait (in real time) until somebody does. A worker unloads a waiting
        run, so nothing sleeps: use `store.wait_until(run_id, waiting=True)`, and then `advance`.
        """
        self.wait_until_sleeping(timeout_s=timeout_s)
        with self._changed:
            before_us = self._now_us
            if self._due:
                self._move_to(max(before_us, min(self._due.values())))
            return (self._now_us - before_us) / 1e6

    def wait_until_sleeping(self, count: int = 1, *, timeout_s: float = PATIENCE_S) -> None:
        """Wait in real time until this many threads and tasks sleep on this clock."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._due) >= count, timeout_s):
                raise TimeoutError(
                    f"{len(self._due)} of {count} sleep on the clock after {timeout_s:g} s; a run "
                    "that waits at a worker is unloaded and does not sleep here: wait for it with "
                    'store.wait_until(run_id, waiting=True), then move the clock with advance("2h")'
                )

    # -- what the runtime asks -----------------------------------------------------------------

    def now_us(self) -> int:
        """Return microseconds since 1970."""
        return self._now_us

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait until the event is set (True) or the fake time has passed (False)."""
        if self._auto:
            if not event.is_set():
                self.advance(max(0.0, seconds))
            return event.is_set()
        with self._sleeping(seconds) as number:
            while not event.is_set():
                with self._changed:
                    if number not in self._due:
                        return False
                    self._changed.wait(LOOK_S)
        return True

    async def wait_async(self, seconds: float, event: Any = None) -> None:
        """Wait in an event loop until the fake time has passed or an asyncio event is set."""
        import asyncio

        if self._auto:
            if event is None or not event.is_set():
                self.advance(max(0.0, seconds))
            await asyncio.sleep(0)
            return
        loop = asyncio.get_running_loop()
        moved = asyncio.Event()

        def wake() -> None:
            # The loop was closed meanwhile: nobody waits for it any more.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(moved.set)

        with self._sleeping(seconds, wake) as number:
            while number in self._due and not (event is not None and event.is_set()):
                await _either(moved, event)
                moved.clear()

    # -- pieces --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _sleeping(
        self, seconds: float, wake: Callable[[], None] | None = None
    ) -> Generator[int, None, None]:
        with self._changed:
            self._last += 1
            number = self._last
            if seconds > 0:
                self._due[number] = self._now_us + round(seconds * 1e6)
            if wake is not None:
                self._wakers[number] = wake
            self._changed.notify_all()
        try:
            yield number
        finally:
            with self._changed:
                self._due.pop(number, None)
                self._wakers.pop(number, None)
                self._changed.notify_all()

    def _move_to(self, now_us: int) -> None:
        self._now_us = now_us
        for number in [number for number, due_us in self._due.items() if due_us <= now_us]:
            del self._due[number]
        self._changed.notify_all()
        for wake in list(self._wakers.values()):
            wake()


async def _either(moved: Any, event: Any) -> None:
    """Wait until one of two asyncio events is set."""
    import asyncio

    if event is None:
        await moved.wait()
        return
    waits = [asyncio.ensure_future(moved.wait()), asyncio.ensure_future(event.wait())]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def real_deadline(timeout_s: float) -> Callable[[], float]:
    """Return a function that returns the remaining real seconds."""
    end = time.monotonic() + timeout_s
    return lambda: end - time.monotonic()
