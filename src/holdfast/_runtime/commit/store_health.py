"""Whether the store can be used: what a worker, its health and its view go by.

Every call of the worker that could fail is made here: the look for runs, the pulse, and, while all
its places are taken, one cheap read about every second. So a worker that has nothing to ask for
still sees that the store has gone.

A call that is being tried again has not failed yet. One that has had no answer for a few seconds,
while no other call had one either, is trouble all the same.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager

from holdfast._runtime import log as logs
from holdfast.errors import StoreError, StoreFailed

LOOK_S = 1.0
"""After which time without an answer a worker whose places are all taken asks for one."""
SILENT_S = 3.0
"""After which a call without an answer is trouble."""


class StoreHealth:
    """Remembers when the store last answered, and what went wrong since."""

    def __init__(self, name: str, url: str, is_closed: Callable[[], bool]) -> None:
        self._name = name
        self._url = url
        self._is_closed = is_closed
        self._lock = threading.Lock()
        self._asked_s: dict[str, float] = {}
        self._failed: dict[str, Exception] = {}
        self._answered_s = time.monotonic()
        self._told = False

    @contextmanager
    def asking(self, what: str) -> Generator[None, None, None]:
        """Around a call of the store: `what` names its kind, of which there is one at a time."""
        with self._lock:
            self._asked_s[what] = time.monotonic()
        try:
            yield
        except Exception as error:
            self._has_failed(what, error)
            raise
        else:
            self._has_answered(what)
        finally:
            with self._lock:
                self._asked_s.pop(what, None)

    def is_due(self) -> bool:
        """Return whether it is time to ask, if only to see that there is an answer."""
        return bool(self._failed) or time.monotonic() - self._answered_s >= LOOK_S

    def silent_s(self) -> float:
        """Return how long ago the store answered."""
        return time.monotonic() - self._answered_s

    @property
    def trouble(self) -> Exception | None:
        """Why the store cannot be used, until it can again."""
        with self._lock:
            found = next(iter(self._failed.values()), None) or self._silence()
        if found is not None:
            self._tell(found)
        return found

    def _silence(self) -> Exception | None:
        now_s = time.monotonic()
        waiting = [at for at in self._asked_s.values() if now_s - at >= SILENT_S]
        if not waiting or now_s - self._answered_s < SILENT_S:
            return None
        error = StoreFailed(f"{self._url} does not answer")
        error.unreachable = True
        return error

    def _has_failed(self, what: str, error: Exception) -> None:
        with self._lock:
            self._failed[what] = error
        self._tell(error)

    def _has_answered(self, what: str) -> None:
        """A store that answers one call can be reached by all; other errors concern their call alone."""
        with self._lock:
            self._answered_s = time.monotonic()
            self._failed = {
                other: error
                for other, error in self._failed.items()
                if other != what and not is_unreachable(error)
            }
            again = self._told and not self._failed
            self._told = self._told and not again
        if again:
            logs.warning("worker %s: the store can be used again", self._name)

    def _tell(self, error: Exception) -> None:
        """Complain once, until it is over."""
        with self._lock:
            told, self._told = self._told, True
        if told or self._is_closed():
            return
        text = "worker %s cannot use the store and tries again: %s"
        if isinstance(error, StoreError):
            logs.warning(text, self._name, error)
        else:
            logs.failure(text, self._name, error, error=error)


def is_unreachable(error: BaseException | None) -> bool:
    """Return whether only the way to the store is broken: it may be there again in a moment."""
    return isinstance(error, StoreError) and error.unreachable
