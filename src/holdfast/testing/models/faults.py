"""What may go wrong on purpose: answers that fail, streams that break off, requests that wait."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True)
class Failure:
    """An answer that is an error."""

    status: int
    retry_after: float | None


class Faults:
    """What was planned and has not struck yet. Used by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._failures: deque[Failure] = deque()
        self._cuts: deque[int] = deque()
        self._open = threading.Event()
        self._open.set()

    def fail(self, failure: Failure, times: int) -> None:
        """The next requests fail."""
        with self._lock:
            self._failures.extend([failure] * times)

    def cut(self, after_events: int) -> None:
        """The next stream breaks off."""
        with self._lock:
            self._cuts.append(after_events)

    def take_failure(self) -> Failure | None:
        """The failure that strikes now, if any."""
        with self._lock:
            return self._failures.popleft() if self._failures else None

    def take_cut(self) -> int | None:
        """After how many events this stream breaks off, if it does."""
        with self._lock:
            return self._cuts.popleft() if self._cuts else None

    def hold(self) -> None:
        """Requests wait from now on."""
        self._open.clear()

    def let_go(self) -> None:
        """Nobody waits any longer."""
        self._open.set()

    def wait(self) -> None:
        """Wait while requests are held."""
        self._open.wait()
