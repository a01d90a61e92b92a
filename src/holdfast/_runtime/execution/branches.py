"""The lines of a run: whether one is at work, or rests.

A line is the flow itself, a branch, or a guest: a task or thread that a framework has opened for a tool,
and that the line which opened it awaits. A line rests while it waits, or while all its guests rest; so a
run whose agent waits for a person is seen to wait, and one of whose tools is at work is not.
"""

from __future__ import annotations

import threading
from typing import Any


class Line:
    """One line of a run. All its numbers are changed under the lock of `Waits`."""

    __slots__ = ("_guests", "_resting", "_waits", "host", "place", "rests")

    def __init__(self, host: Line | None = None, place: Any = None) -> None:
        self.host = host
        """The line that awaits this one, if it is a guest."""
        self.place = place
        """Of a guest: the thread and task that it is."""
        self.rests = False
        self._waits = 0
        self._guests = 0
        self._resting = 0

    def waits(self, more: int) -> int:
        """One more (or less) waits here; returns how many more lines of the run are at work."""
        self._waits += more
        return self._changed()

    def enters(self, more: int) -> int:
        """This guest has come to its host (or leaves it); returns the same."""
        assert self.host is not None
        self.host._guests += more
        return self.host._changed()

    def _changed(self) -> int:
        waiting = self._waits > 0 or self._guests > 0
        rests = waiting and self._resting == self._guests
        if rests == self.rests:
            return 0
        self.rests = rests
        if self.host is None:
            return -1 if rests else 1
        self.host._resting += 1 if rests else -1
        return self.host._changed()


def place_of(task: Any) -> Any:
    """Return what identifies the executing thread and task."""
    return threading.get_ident(), task
