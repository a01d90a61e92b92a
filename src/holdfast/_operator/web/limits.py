"""Limits of requests: size, rate and concurrency.

A wrong token delays the answer, each further one longer. A valid token never waits because of wrong
ones from elsewhere, so nobody can lock an operator out.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator

from holdfast._operator.web.headers import Receive
from holdfast._operator.web.http_responses import Problem

BODY_MAX_BYTES = 1 << 20
BODY_S = 10.0
RATE_PER_S, BURST = 100.0, 400.0
"""The request rate of one visitor."""
KNOWN_MAX = 10_000
HEAVY_EACH, HEAVY_WAITING = 2, 30
"""How many heavy reads of one visitor run at the same time, and how many may wait."""
STREAMS_MAX, STREAMS_EACH = 200, 20
WRONG_PER_S, WRONG_BURST = 2.0, 60.0
"""Wrong tokens at sign-in from one address; valid ones are not counted."""
FAILURE_DELAY_S, FAILURE_DELAY_MAX_S, FREE_FAILURES = 0.1, 5.0, 3
FAILURE_MEMORY_S = 600.0
ALL_FREE_FAILURES, ALL_PER_DOUBLING, ALL_HALVED_S = 100, 20, 60.0
"""The number of failures of all addresses above which each is delayed; the count halves every
minute."""
DELAYED_MAX = 50
"""How many delayed refusals may wait; further ones are sent at once, with 429."""


async def body(receive: Receive, length: str | None) -> bytes:
    """Return the body of a request; refuse one that is too large."""
    if length is not None and (not length.isdigit() or int(length) > BODY_MAX_BYTES):
        raise too_large()
    try:
        async with asyncio.timeout(BODY_S):
            return await _body(receive)
    except TimeoutError:
        raise Problem(408, "TooSlow", f"the body must arrive within {BODY_S:.0f} s") from None


async def _body(receive: Receive) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise Problem(400, "UsageError", "the request ended too early")
        part: bytes = message.get("body", b"")
        size += len(part)
        if size > BODY_MAX_BYTES:
            raise too_large()
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def too_large() -> Problem:
    """Return the refusal of a body that is too large."""
    return Problem(413, "TooLarge", f"the body must have at most {BODY_MAX_BYTES:,} bytes")


class Rate:
    """The request rate of each visitor, with a burst."""

    def __init__(self, per_s: float | None = None, burst: float | None = None) -> None:
        self._per_s, self._burst = per_s or RATE_PER_S, burst or BURST
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, who: str) -> None:
        """Count a request, or refuse it."""
        now_s = time.monotonic()
        left, at_s = self._left.pop(who, (self._burst, now_s))
        left = min(self._burst, left + (now_s - at_s) * self._per_s)
        self._left[who] = (left - 1 if left >= 1 else left, now_s)
        while len(self._left) > KNOWN_MAX:
            self._left.popitem(last=False)
        if left < 1:
            problem = Problem(429, "TooMany", "too many requests; wait a moment")
            problem.headers["Retry-After"] = "1"
            raise problem


class Failures:
    """Wrong credentials by client address, and the delay of their refusals."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._lately = (0.0, time.monotonic())
        """Failures of all addresses together, decreasing with time: an attacker may have many
        addresses."""
        self._delayed = 0

    async def delay(self, address: str) -> None:
        """Count a failure, and wait for its delay."""
        seconds = self.note(address)
        if self._delayed >= DELAYED_MAX:
            problem = Problem(429, "TooMany", "too many wrong credentials; wait a moment")
            problem.headers["Retry-After"] = str(round(FAILURE_DELAY_MAX_S))
            raise problem
        self._delayed += 1
        try:
            await asyncio.sleep(seconds)
        finally:
            self._delayed -= 1

    def note(self, address: str) -> float:
        """Count a failure, and return its delay in seconds."""
        now_s = time.monotonic()
        count, at_s = self._counts.pop(address, (0, now_s))
        count = 1 if now_s - at_s > FAILURE_MEMORY_S else count + 1
        self._counts[address] = (count, now_s)
        while len(self._counts) > KNOWN_MAX:
            self._counts.popitem(last=False)
        return max(_cost(count - FREE_FAILURES), _cost(self._of_all(now_s)))

    def _of_all(self, now_s: float) -> int:
        lately, at_s = self._lately
        lately = lately * 0.5 ** ((now_s - at_s) / ALL_HALVED_S) + 1
        self._lately = (lately, now_s)
        return (
            int((lately - ALL_FREE_FAILURES) / ALL_PER_DOUBLING) + 1
            if lately > ALL_FREE_FAILURES
            else 0
        )

    def forget(self, address: str) -> None:
        """Forget the failures of an address after a valid credential from it."""
        self._counts.pop(address, None)


def _cost(count: int) -> float:
    """Return the delay of a failure in seconds; it doubles with each failure."""
    if count <= 0:
        return 0.0
    return min(FAILURE_DELAY_MAX_S, FAILURE_DELAY_S * float(1 << min(count - 1, 10)))


class Turns:
    """Limits the heavy reads of each visitor: a few run, some more wait, the rest are refused."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[asyncio.Semaphore, int]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, who: str) -> AsyncGenerator[None]:
        """Wait until it is this visitor's turn."""
        room, number = self._known.get(who) or (asyncio.Semaphore(HEAVY_EACH), 0)
        if number >= HEAVY_EACH + HEAVY_WAITING:
            raise Problem(429, "TooMany", "too many concurrent reads; wait for their answers")
        self._known[who] = (room, number + 1)
        try:
            async with room:
                yield
        finally:
            room, number = self._known.pop(who)
            if number > 1:
                self._known[who] = (room, number - 1)


class Streams:
    """Limits the open streams: in total, and of each visitor."""

    def __init__(self) -> None:
        self._open: Counter[str] = Counter()

    def take(self, who: str) -> None:
        """Count a stream, or refuse it."""
        if self._open[who] >= STREAMS_EACH or self._open.total() >= STREAMS_MAX:
            raise Problem(429, "TooMany", "too many streams are open; close one of them")
        self._open[who] += 1

    def give_back(self, who: str) -> None:
        """Count a stream that has ended."""
        self._open[who] -= 1
        if not self._open[who]:
            del self._open[who]
