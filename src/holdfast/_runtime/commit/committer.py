"""The committer: all runs of a process hand in their writes, and they share commits.

A thread that waits for a write becomes the leader if there is none: it takes the whole queue, commits
it in one transaction and wakes the others. So a lone run commits in its own thread with no
hand-over, and a thousand runs share each commit. One background thread leads the writes that no
thread waits for (async runs, grouped steps, heartbeats).

    submit ─► queue ─► leader takes all ─► store.append ─► wake waiters ─► nudge the next leader

A run's writes commit in the order of their submission, because the queue keeps it. A failed
commit fails the whole batch: an error that is not I/O was already repeated item by item by the
store; after an I/O error the store acknowledges nothing any more.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from holdfast._engine.journal.rows import Write
from holdfast._runtime.clocks import Thread
from holdfast._stores.contract import Broken, Committed, NewRun, Outcome, Started, Store
from holdfast.errors import StoreFull

_NO_WRITE: Any = None
_write_of = operator.attrgetter("write")
_patience_of = operator.attrgetter("patience_s")
BATCH_MAX = 1000
FULL_PAUSE_S = 0.2
"""Pause between tries when the disk is full and an outcome waits to be written."""


class Ticket:
    """One write on its way. `outcome` or `error` is set when `done`."""

    __slots__ = (
        "_gate",
        "callback",
        "done",
        "error",
        "future",
        "lazy",
        "outcome",
        "parked",
        "patience_s",
        "write",
    )

    def __init__(self, write: Write, callback: Callable[[Ticket], None] | None = None) -> None:
        self.write = write
        self.callback = callback
        self.outcome: Outcome | None = None
        self.error: BaseException | None = None
        self.done = False
        self.lazy = False
        self.parked = False
        """Set while a transaction of the same run is under way: the write is not queued yet."""
        self.future: Any = None
        """The future that a task awaits, in the thread of its event loop."""
        self.patience_s = 0.0
        """How long a full disk is waited for: outcomes of effects are worth it."""
        self._gate = threading.Lock()
        self._gate.acquire()

    def block(self) -> None:
        """Wait until something may have happened to this ticket."""
        self._gate.acquire()

    def nudge(self) -> None:
        """Wake the thread that blocks on this ticket."""
        with contextlib.suppress(RuntimeError):  # Already awake: one wake is enough.
            self._gate.release()


class StartTicket(Ticket):
    """A new run on its way; `started` is set when it is done."""

    __slots__ = ("new", "owner", "started")

    def __init__(self, new: NewRun, owner: int | None) -> None:
        super().__init__(_NO_WRITE)
        self.new = new
        self.owner = owner
        self.started: Started | None = None


def _fail(batch: Sequence[Ticket], error: BaseException) -> None:
    for ticket in batch:
        ticket.error = error


class Committer:
    """Group commit for one store handle."""

    def __init__(self, store: Store, wrote: Callable[[Write], None] | None = None) -> None:
        self._store = store
        self._wrote = wrote
        """Told of each write that is committed; it never raises."""
        self._queue: deque[Ticket] = deque()
        self._lead = threading.Lock()
        self._wake = threading.Lock()  # A pure lock: a finalizer may release it at any moment.
        self._wake.acquire()
        self._woken = False
        self._thread: threading.Thread | None = None
        self._closed = False

    def submit(self, ticket: Ticket) -> None:
        """Queue a write whose submitter will call `wait`."""
        self._queue.append(ticket)

    def submit_background(self, ticket: Ticket) -> None:
        """Queue a write that nobody leads; the background thread takes it."""
        self._queue.append(ticket)
        if self._thread is None:
            self._start()
        self._rouse()

    def submit_lazily(self, ticket: Ticket) -> None:
        """Queue a write that is in no hurry: it goes with the next one of anybody."""
        ticket.lazy = True
        self._queue.append(ticket)

    def wait(self, ticket: Ticket) -> Outcome:
        """Lead or follow until the write is done; returns its outcome or raises its error."""
        self.until_done(ticket)
        if ticket.error is not None:
            raise ticket.error
        assert ticket.outcome is not None
        return ticket.outcome

    def pass_through(self, ticket: Ticket) -> None:
        """Commit until this write is done, even if it is lazy or another thread waits for it."""
        if ticket.done and ticket.callback is None:
            return
        while True:
            with self._lead:
                if ticket.done:
                    break
                self._commit()
        self._hand_over()

    def start(self, new: NewRun, owner: int | None) -> Started:
        """Start a run, together with whatever else is being started or written."""
        ticket = StartTicket(new, owner)
        self._queue.append(ticket)
        self.until_done(ticket)
        if ticket.error is not None:
            raise ticket.error
        assert ticket.started is not None
        return ticket.started

    def until_done(self, ticket: Ticket) -> None:
        """Lead or follow until the write is done."""
        while not ticket.done:
            if ticket.parked:
                ticket.block()
            elif self._lead.acquire(blocking=False):
                try:
                    if not ticket.done:
                        self._commit()
                finally:
                    self._lead.release()
                if self._queue:
                    self._hand_over()
            else:
                ticket.block()

    def flush(self) -> None:
        """Commit what has gathered."""
        while self._queue:
            with self._lead:
                self._commit()

    def close(self) -> None:
        """Commit what is left and end the background thread."""
        self._closed = True
        with contextlib.suppress(Exception):
            self.flush()
        if self._thread is not None:
            _open(self._wake)
            self._thread.join(timeout=10)
            self._thread = None

    # -- leading ---------------------------------------------------------------------------

    def _commit(self) -> None:
        """Take what has gathered and commit it. Called by the leader only."""
        starts: list[StartTicket] = []
        writes: list[Ticket] = []
        queue, room = self._queue, BATCH_MAX
        while queue and room:
            room -= 1
            ticket = queue.popleft()
            if isinstance(ticket, StartTicket):
                starts.append(ticket)
            else:
                writes.append(ticket)
        if starts:
            try:
                self._start_all(starts)
            except BaseException as error:
                _fail(starts, error)
            self._wake_all(starts)
        if writes:
            try:
                try:
                    outcomes = self._store.append(list(map(_write_of, writes)))
                except StoreFull as full:
                    outcomes = self._append_with_patience(writes, full)
                for written, outcome in zip(writes, outcomes, strict=True):
                    if isinstance(outcome, Broken):
                        written.error = outcome.error
                    written.outcome = outcome
            except BaseException as error:
                _fail(writes, error)
            self._wake_all(writes)

    def _wake_all(self, batch: Sequence[Ticket]) -> None:
        """Wake the waiters of a batch that was committed or has failed."""
        if self._wrote is not None:
            # Before any waiter goes on: observers know of the write by then.
            for ticket in batch:
                if isinstance(ticket.outcome, Committed):
                    self._wrote(ticket.write)
        for ticket in batch:
            ticket.done = True
            if ticket.callback is None:
                ticket.nudge()
            else:
                ticket.callback(ticket)

    def _start_all(self, batch: list[StartTicket]) -> None:
        started = self._store.start_all([(ticket.new, ticket.owner) for ticket in batch])
        for ticket, found in zip(batch, started, strict=True):
            ticket.started = found

    def _append_with_patience(self, batch: list[Ticket], full: StoreFull) -> list[Outcome]:
        """The disk is full: wait for space if some write is worth waiting for."""
        deadline_s = time.monotonic() + max(map(_patience_of, batch))
        while time.monotonic() < deadline_s:
            time.sleep(FULL_PAUSE_S)
            try:
                return self._store.append(list(map(_write_of, batch)))
            except StoreFull as still:
                full = still
        raise full

    def _hand_over(self) -> None:
        """If writes came in meanwhile, see to it that somebody leads them."""
        for pressing in list(self._queue):
            if pressing.lazy:
                continue
            if pressing.callback is None:
                pressing.nudge()
            else:
                self._rouse()
            return

    def _rouse(self) -> None:
        """Wake the background thread, once for however many writes."""
        if not self._woken:
            self._woken = True
            _open(self._wake)

    def _start(self) -> None:
        wake = self._wake
        weak: weakref.ref[Committer] = weakref.ref(self, lambda _: _open(wake))
        run = functools.partial(_lead_until, wake, weak)
        thread = Thread(target=run, name="holdfast-committer")
        thread.start()
        self._thread = thread

    def lead_once(self) -> bool:
        """Commit what has gathered; returns whether the thread is needed any longer."""
        self._woken = False  # Before the look at the queue, so that no write is missed.
        if self._queue:
            with self._lead:
                self._commit()
            self._hand_over()
            return True
        return not self._closed


def _lead_until(wake: threading.Lock, weak: Callable[[], Committer | None]) -> None:
    """Lead background writes until the committer is closed, or nobody refers to it any more."""
    goes_on = True
    while goes_on:
        wake.acquire()
        committer = weak()
        goes_on = committer is not None and committer.lead_once()
        del committer  # Do not keep it while waiting.


def _open(wake: threading.Lock) -> None:
    with contextlib.suppress(RuntimeError):  # It is open already: once is enough.
        wake.release()
