"""The lines of a run: which are at work, which wait, and for what.

A line is the flow itself, a branch, or a guest: a task or thread that a framework has opened for a tool,
and that the line which opened it awaits. A line rests while it waits, or while all its guests rest; so a
run whose agent waits for a person is seen to wait, and one of whose tools is at work is not.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable
from typing import TYPE_CHECKING, Any

from holdfast._engine.journal.rows import Message
from holdfast._engine.scripts.requests import Await
from holdfast._engine.scripts.stops import Waiting

if TYPE_CHECKING:
    from holdfast._runtime.inbox_poller import RunInbox

QUIET_S = 2.0
"""How long nothing is recorded before a run is taken to wait in tasks of a framework."""


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


class Wait:
    """One wait of a line."""

    __slots__ = ("by_guest", "over", "request", "rung", "wake")

    def __init__(self, request: Await, *, by_guest: bool) -> None:
        self.request = request
        self.by_guest = by_guest
        self.over = False
        self.rung = threading.Event()
        self.wake: Callable[[], None] = self.rung.set

    def waiting(self) -> Waiting:
        """Return what it waits for."""
        about = self.request.about or self.request.kind or "timer"
        what, _, name = about.partition(":")
        return Waiting(what, name, self.request.until_us, self.request.call.key)


class Waits:
    """How many lines of one run are at work, and what the others wait for."""

    def __init__(self) -> None:
        self.unloads = False
        """Whether the run is unloaded when all its lines wait: in a worker."""
        self.unawaited: set[str] = set()
        """Calls of async steps that took their key and were not awaited yet."""
        self.key_waits: dict[str, float] = {}
        """Since when calls wait for a key that another run has."""
        self.lock = threading.Lock()
        self._busy = 1
        self.moved_s = 0.0
        """When something happened in the run last; the recorder sets it with each write."""
        self._waits: list[Wait] = []
        self._said: list[Waiting] = []

    # -- branches ------------------------------------------------------------------------------

    def add(self, lines: int) -> None:
        """Count so many more lines at work (or fewer)."""
        with self.lock:
            self._busy += lines
            idle = self._busy <= 0
        if idle:
            self.ring()

    def fan_out(self, branches: int, at_once: int) -> Fan:
        """The line that opens branches hands its place on to them, and gets it back from the last:
        in between there is no moment at which the run seems to wait."""
        return Fan(self, branches, at_once)

    @contextlib.contextmanager
    def guest(self, guest: Line) -> Generator[None]:
        """While a tool is called in a task or thread of a framework."""
        self._changed(lambda: guest.enters(1))
        try:
            yield
        finally:
            self._changed(lambda: guest.enters(-1))

    def _changed(self, change: Callable[[], int]) -> None:
        """Something happens in the run, which may change how many lines are at work."""
        with self.lock:
            self.moved_s = time.monotonic()
            lines = change()
            self._busy += lines
            idle = lines < 0 and self._busy <= 0
        if idle:
            self.ring()

    # -- waiting lines -------------------------------------------------------------------------

    @contextlib.contextmanager
    def wait(self, request: Await, line: Line | None) -> Generator[Wait, None, None]:
        """While one line waits. A task of the user's own that no line awaits has none, and is not
        counted: the line that started it is at work, so the run is not unloaded."""
        wait = Wait(request, by_guest=line is not None and line.host is not None)
        with self.lock:
            self._waits.append(wait)
        if line is not None:
            self._changed(lambda: line.waits(1))
        try:
            yield wait
        finally:
            with self.lock:
                self._waits.remove(wait)
                if request.looks_us is None:
                    self._said = []
            if line is not None:
                self._changed(lambda: line.waits(-1))

    def unsure_s(self) -> float:
        """Return how long the run must stay quiet yet before its waiting lines are all there is."""
        with self.lock:
            if not any(wait.by_guest for wait in self._waits):
                return 0.0
        return self.moved_s + QUIET_S - time.monotonic()

    def ring(self, kinds: Collection[str | None] | None = None) -> None:
        """Wake the lines that wait, so that they look again: all of them, or those that wait for
        messages of these kinds."""
        with self.lock:
            waits = [it for it in self._waits if kinds is None or it.request.kind in kinds]
        for wait in waits:
            wait.wake()

    def reserve(self, inbox: RunInbox, wait: Wait) -> Message | None:
        """Give a line its message; from then on it does not wait."""
        with self.lock:
            message = inbox.reserve(wait.request.kind)
            wait.over = message is not None
            return message

    def for_messages(self) -> bool:
        """Return whether a line waits for a message."""
        with self.lock:
            return any(wait.request.kind is not None for wait in self._waits)

    def idle(self, inbox: RunInbox, open_calls: Iterable[str]) -> list[Waiting]:
        """Return what the lines wait for, if all of them do and no step is executing."""
        with self.lock:
            # A call that waits (for a person, between two attempts) executes nothing.
            still = {wait.request.call.key for wait in self._waits}
            if self._busy > 0 or any(key not in still for key in open_calls):
                return []
            if any(wait.over or inbox.has(wait.request.kind) for wait in self._waits):
                return []
            return [wait.waiting() for wait in self._waits]

    def says_new(self, waiting: list[Waiting]) -> bool:
        """Return whether this wait was not reported yet; from now on it counts as reported."""
        with self.lock:
            said, self._said = self._said, waiting
            return said != waiting


class Fan:
    """Branches that were opened together."""

    def __init__(self, waits: Waits, branches: int, at_once: int) -> None:
        self._waits = waits
        self._left = min(branches, at_once)
        self._later = branches - self._left
        if self._left:
            waits.add(self._left - 1)

    def ended(self) -> None:
        """One branch has ended: its place is for the next, or, at last, for who opened them."""
        with self._waits.lock:
            if self._later:
                self._later -= 1
                return
            self._left -= 1
            if not self._left:
                return
        self._waits.add(-1)
