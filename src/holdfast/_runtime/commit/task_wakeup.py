"""Waking tasks of an event loop when what they wait for is committed."""

from __future__ import annotations

import contextlib
import weakref
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from holdfast._runtime.commit.committer import Ticket


class Waker:
    """Wakes the tasks of one event loop, once per commit however many waited for it."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = weakref.ref(loop)
        self._done: deque[Ticket] = deque()
        self._is_due = False

    def wake(self, ticket: Ticket) -> None:
        """Have the task that awaits a ticket go on in its loop."""
        self._done.append(ticket)
        if not self._is_due:
            self._is_due = True
            loop = self._loop()
            if loop is not None:
                with contextlib.suppress(RuntimeError):  # The loop was closed: nobody waits.
                    loop.call_soon_threadsafe(self._drain)

    def _drain(self) -> None:
        self._is_due = False
        while self._done:
            future = self._done.popleft().future
            if future is not None and not future.done():
                with contextlib.suppress(Exception):  # An interrupt may have ended it just now.
                    future.set_result(None)


async def written(ticket: Ticket) -> BaseException | None:
    """Wait until a write is through, whatever comes; returns a cancellation that came meanwhile."""
    import asyncio

    cancelled: BaseException | None = None
    loop = asyncio.get_running_loop()
    while not ticket.done:
        # The waker looks at `ticket.future` in this loop's own thread, so nothing is missed.
        ticket.future = loop.create_future()
        try:
            await ticket.future
        except asyncio.CancelledError as error:
            cancelled = error
    return cancelled
