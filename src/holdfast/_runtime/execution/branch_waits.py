"""The lines of a run that wait, and when the run can be unloaded meanwhile.

A run has one line of calls, and one more per branch that is at work. When every line waits for a
time or a message and no step is executing, there is nothing to do for anybody: in a worker the flow
is unwound and the run given back (`run_waiting`), with the time or the newest message that it has
seen; it costs no thread, connection or lease until then. `flow.run` and blocks wait in the process.

A task or thread that a framework has opened for a tool is a guest of the line that awaits it (`lines`), if
`step_key` was told so. What the framework itself does meanwhile cannot be seen, so nothing must have been
recorded for a moment (`QUIET_S`) before the run is taken to wait.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Generator
from typing import TYPE_CHECKING, Any

from holdfast._engine.journal.inbox_messages import ANSWER
from holdfast._engine.journal.rows import Message
from holdfast._engine.scripts.requests import Await
from holdfast._engine.scripts.stops import Unload, Unwind, Waiting
from holdfast._runtime.execution.frames import current
from holdfast._runtime.execution.key_override import line_here
from holdfast._runtime.worker import worker_log
from holdfast.errors import RunError

if TYPE_CHECKING:
    from holdfast._runtime.execution.branches import Line
    from holdfast._runtime.execution.execution import Execution

SHORT_US = 1_000_000
"""A wait that is over so soon is waited for in the process."""
LINGER_S = 0.05
"""How long a line waits for a message before the run is unloaded: the answer may be on its way."""
QUIET_S = 2.0
"""How long nothing is recorded before a run is taken to wait in tasks of a framework."""


class Wait:
    """One wait of a line."""

    __slots__ = ("by_guest", "over", "request", "rung", "wake")

    def __init__(self, request: Await, *, by_guest: bool) -> None:
        self.request = request
        self.by_guest = by_guest
        self.over = False
        self.rung = threading.Event()
        self.wake: Callable[[], None] = self.rung.set

    def told(self) -> Waiting:
        """Return what it waits for."""
        about = self.request.about or self.request.kind or "timer"
        what, _, name = about.partition(":")
        return Waiting(what, name, self.request.until_us, self.request.call.key)


class Waits:
    """How many lines of one run are at work, and what the others wait for."""

    def __init__(self) -> None:
        self.unloads = False
        """Whether the run is unloaded when all its lines wait: in a worker."""
        self.lock = threading.Lock()
        self._busy = 1
        self._moved_s = 0.0
        self._waits: list[Wait] = []
        self._said: list[Waiting] = []

    # -- branches ------------------------------------------------------------------------------

    def add(self, lines: int) -> None:
        """Say that so many more lines are at work (or fewer)."""
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
            self.moved()
            lines = change()
            self._busy += lines
            idle = lines < 0 and self._busy <= 0
        if idle:
            self.ring()

    # -- waiting lines -------------------------------------------------------------------------

    @contextlib.contextmanager
    def wait(self, request: Await) -> Generator[Wait, None, None]:
        """While one line waits. A task of the user's own that nobody is known to await is not
        counted: whoever started it is at work, and so the run is not unloaded."""
        frame = current.get()
        line = None if frame is None else line_here(frame)
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

    def moved(self) -> None:
        """Something happens in the run."""
        self._moved_s = time.monotonic()

    def unsure_s(self) -> float:
        """Return how long the run must stay quiet yet before its waiting lines are all there is."""
        with self.lock:
            if not any(wait.by_guest for wait in self._waits):
                return 0.0
        return self._moved_s + QUIET_S - time.monotonic()

    def ring(self, kinds: Collection[str | None] | None = None) -> None:
        """Wake the lines that wait, so that they look again: all of them, or those that wait for
        messages of these kinds."""
        with self.lock:
            waits = [it for it in self._waits if kinds is None or it.request.kind in kinds]
        for wait in waits:
            wait.wake()

    def reserve(self, execution: Execution, wait: Wait) -> Message | None:
        """Give a line its message; from then on it does not wait."""
        with self.lock:
            message = execution.mail.reserve(wait.request.kind)
            wait.over = message is not None
            return message

    def for_messages(self) -> bool:
        """Tell whether a line waits for a message."""
        with self.lock:
            return any(wait.request.kind is not None for wait in self._waits)

    def idle(self, execution: Execution) -> list[Waiting]:
        """Return what the lines wait for, if all of them do and no step is executing."""
        if execution.unawaited:
            return []
        with self.lock:
            # A call that waits (for a person, between two attempts) executes nothing.
            still = {wait.request.call.key for wait in self._waits}
            if self._busy > 0 or any(key not in still for key in execution.recorder.open_calls):
                return []
            if any(wait.over or execution.mail.has(wait.request.kind) for wait in self._waits):
                return []
            return [wait.told() for wait in self._waits]

    def says_new(self, waiting: list[Waiting]) -> bool:
        """Tell whether people were not told of this wait yet; they are now."""
        with self.lock:
            said, self._said = self._said, waiting
            return said != waiting


def is_counted() -> bool:
    """Tell whether the run can be unloaded while the calling thread or task waits."""
    frame = current.get()
    return frame is not None and line_here(frame) is not None


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


# -- what both drivers do ----------------------------------------------------------------------


def is_stale(execution: Execution, request: Await, now_us: int) -> bool:
    """Tell whether the inbox is to be read before looking: for the first time, and when the time is
    over, because what came before that counts."""
    if request.kind is None:
        return False
    is_over = request.until_us is not None and request.until_us <= now_us
    return is_over or not execution.mail.looked


def look(
    execution: Execution, request: Await, now_us: int, wait: Wait
) -> tuple[bool, Message | None, float | None]:
    """Look once: whether the wait is over, with what, and else how many seconds are left."""
    execution.check()
    message = execution.waits.reserve(execution, wait)
    if message is not None:
        return True, message, None
    times = (request.until_us, request.looks_us)
    if any(it is not None and it <= now_us for it in times):
        return True, None, None
    ends = [it for it in (*times, execution.deadline_us) if it is not None]
    return False, None, max(0.001, (min(ends) - now_us) / 1e6) if ends else None


def settle_down(execution: Execution, wait: Wait) -> float | None:
    """Every line may be waiting now: unload the run, or say in its row that it waits. Returns the
    seconds after which the wait looks again, if nobody would ring it."""
    waits = execution.waits
    heard = execution.mail.heard
    waiting = waits.idle(execution)
    if not waiting:
        return QUIET_S if wait.by_guest else None
    ends = [it.until_us for it in waiting if it.until_us is not None]
    if ends and min(ends) - execution.engine.now_us() <= SHORT_US:
        return QUIET_S if wait.by_guest else None
    if (unsure_s := waits.unsure_s()) > 0:
        return unsure_s
    if waits.unloads:
        raise execution.stop(_unload(execution, waiting, heard))
    if waits.says_new(waiting):
        execution.recorder.say_waiting(waiting)
        if any(f"{it.what}:" == ANSWER for it in waiting):
            worker_log.asks_people(execution.lease.row)
    return None


def _unload(execution: Execution, waiting: list[Waiting], heard: int) -> Unwind:
    told = RunError(execution.run_id, f"run {execution.run_id!r} waits, and was unloaded")
    return Unwind(told, unload=Unload(waiting, heard))


def lingers(execution: Execution, request: Await) -> bool:
    """Tell whether to stay for a moment before the run is unloaded."""
    return request.kind is not None and execution.waits.unloads


def await_blocking(execution: Execution, request: Await) -> Message | None:
    """Wait in this thread."""
    if request.kind is not None:
        execution.engine.postman.listen()
    with execution.waits.wait(request) as wait:
        stays = lingers(execution, request)
        while True:
            now_us = execution.engine.now_us()
            if is_stale(execution, request, now_us):
                execution.mail.refresh()
            over, message, left_s = look(execution, request, now_us, wait)
            if over:
                return message
            if stays:
                stays = False
                wait.rung.wait(LINGER_S)
                wait.rung.clear()
                continue
            again_s = settle_down(execution, wait)
            if left_s is None or (again_s is not None and again_s < left_s):
                wait.rung.wait(again_s)
            else:
                execution.engine.clock.wait(wait.rung, left_s)
            wait.rung.clear()


async def await_async(execution: Execution, request: Await) -> Message | None:
    """Wait in the running event loop."""
    import asyncio

    loop = asyncio.get_running_loop()
    rung = asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # The loop was closed: nobody waits.
            loop.call_soon_threadsafe(rung.set)

    if request.kind is not None:
        execution.engine.postman.listen()
    with execution.waits.wait(request) as wait:
        wait.wake = wake
        stays = lingers(execution, request)
        while True:
            now_us = execution.engine.now_us()
            if is_stale(execution, request, now_us):
                await loop.run_in_executor(execution.engine.threads(), execution.mail.refresh)
            over, message, left_s = look(execution, request, now_us, wait)
            if over:
                return message
            if stays:
                stays = False
                await _rings(rung, LINGER_S)
                continue
            again_s = settle_down(execution, wait)
            if again_s is not None and (left_s is None or again_s < left_s):
                await _rings(rung, again_s)
            elif left_s is None:
                await rung.wait()
            else:
                await execution.engine.clock.wait_async(left_s, rung)
            rung.clear()


async def _rings(rung: Any, within_s: float) -> None:
    import asyncio

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(rung.wait(), within_s)
    rung.clear()
