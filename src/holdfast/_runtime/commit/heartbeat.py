"""The heartbeat: lease renewal for all runs of a process, by one thread per store.

One heartbeat is one small write, however many runs the process owns. It has its own thread, never the
user's event loop, so a blocked loop loses no lease. Each heartbeat also

* stops the runs that another process has taken over;
* writes the start of plain steps that are still executing, so that operators see them;
* releases runs whose last write failed, since the renewed lease would keep them from other processes.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.rows import Lease, Write
from holdfast._engine.scripts.stops import Unwind
from holdfast._runtime import log as logs
from holdfast._runtime.clocks import Thread
from holdfast._runtime.commit.store_health import StoreHealth, is_unreachable
from holdfast._stores.contract import Fenced
from holdfast.errors import LeaseLost, StoreError

if TYPE_CHECKING:
    from holdfast._runtime.feature import CommitListener
    from holdfast._stores.contract import Store


class OwnedRun(Protocol):
    """A run that this process executes, and whose lease its pulse renews."""

    @property
    def run_id(self) -> str:
        """Its name."""
        ...

    @property
    def run_no(self) -> int:
        """Its number in the store."""
        ...

    @property
    def lease(self) -> Lease:
        """The lease that guards its writes."""
        ...

    @property
    def recorder(self) -> Beats:
        """The recorder, which writes the starts of steps that take long."""
        ...

    def stop(self, unwind: Unwind, *, later: bool = False) -> Unwind:
        """Stop it: another process has it."""
        ...


class Beats(Protocol):
    """A writer that is called with each beat."""

    def beat(self) -> object:
        """Write what has not been written since the last beat."""
        ...


class Worker(Protocol):
    """A worker of this process: it watches whether the store answers."""

    @property
    def store_health(self) -> StoreHealth:
        """Its watch on the store."""
        ...


class Owner(Protocol):
    """The process as an owner of runs of one store: its engine."""

    @property
    def backend(self) -> Store:
        """Where its runs are."""
        ...

    @property
    def now_us(self) -> Callable[[], int]:
        """The clock of the store."""
        ...

    @property
    def facts(self) -> Callable[[], str]:
        """The facts that each pulse carries (JSON)."""
        ...

    @property
    def listeners(self) -> Sequence[CommitListener]:
        """The listeners of features."""
        ...

    @property
    def worker(self) -> Worker | None:
        """Its worker, if it has one."""
        ...

    def owner(self) -> int:
        """Return its number as an owner."""
        ...

    def may_own(self) -> bool:
        """Return whether its leases are worth a pulse."""
        ...

    def executing(self) -> Sequence[OwnedRun]:
        """Return the runs at work here."""
        ...

    def abandoned(self) -> list[Lease]:
        """Return the leases that are still to be given back."""
        ...

    def given_back(self, lease: Lease) -> None:
        """Forget an abandoned run."""
        ...


class Heartbeat:
    """Beats three times per lease while this process may own something.

    Its thread holds it weakly, and ends with it: a store that is dropped without `close` is collected.
    """

    def __init__(self, engine: Owner, every_s: float) -> None:
        self._engine = engine
        self._every_s = every_s
        self._stop = threading.Lock()  # A pure lock: a finalizer may release it at any moment.
        self._stop.acquire()
        self._thread: threading.Thread | None = None
        self.failed = False
        """Whether the last pulse could not be written."""

    def ensure(self) -> None:
        """Start the thread if it is not there yet."""
        if self._thread is None:
            stop = self._stop
            weak: weakref.ref[Heartbeat] = weakref.ref(self, lambda _: _release(stop))
            run = functools.partial(_beat_until, stop, self._every_s, weak)
            thread = Thread(target=run, name="holdfast-heartbeat")
            thread.start()
            self._thread = thread

    def close(self) -> None:
        """End the thread."""
        _release(self._stop)
        if self._thread is not None:
            self._thread.join(timeout=5)

    def run_once(self) -> None:
        """Beat once, and let the listeners of features do what they do with each beat."""
        try:
            self.beat()
            if not self.failed:
                for listener in self._engine.listeners:
                    listener.beat()
        except MemoryError:
            pass  # Nothing more, as a log line could fail too; the next beat tries again.

    def beat(self) -> None:
        """Beat once; an error is logged, and the next beat tries again."""
        engine = self._engine
        if not engine.may_own():
            return
        executions = engine.executing()
        try:
            self._pulse(executions)
            self.failed = False
        except MemoryError:
            raise
        except Exception as error:
            self._tell(error)
            if is_unreachable(error):
                return
        for execution in executions:
            try:
                execution.recorder.beat()
            except Unwind:
                continue
            except Exception as error:
                logs.failure("heartbeat of run %s failed", execution.run_id, error=error)
        for lease in engine.abandoned():
            try:
                self.give_back(lease, "its last write failed")
            except Exception as error:
                run_id = lease.row.run_id
                logs.failure("run %s could not be released yet", run_id, error=error)

    def _pulse(self, executions: Sequence[OwnedRun]) -> None:
        """Renew the leases of this process, and stop the runs that it has lost."""
        engine = self._engine
        working = [(run.run_no, run.lease.row.epoch) for run in executions]
        worker = engine.worker
        with contextlib.nullcontext() if worker is None else worker.store_health.asking("pulse"):
            lost = set(engine.backend.pulse(engine.owner(), engine.facts(), working))
        for execution in executions:
            if execution.run_no in lost:
                execution.stop(Unwind(LeaseLost(execution.run_id)), later=True)

    def _tell(self, error: Exception) -> None:
        """Complain once, until it is over; a worker's own watch has complained already."""
        if not isinstance(error, StoreError):
            logs.failure("the pulse of this process failed", error=error)
        elif not self.failed and self._engine.worker is None:
            logs.warning("the pulse of this process failed, and is tried again: %s", error)
        self.failed = True

    def give_back(self, lease: Lease, why: str, claims: int | None = None) -> None:
        """Release a run that nobody works on here; a lost one is somebody else's already. `claims`
        is how many of its claims are still counted."""
        engine = self._engine
        body = msgspec.json.encode({"why": why})
        draft = Draft(Kind.RUN_RELEASED, engine.now_us(), body=body)
        # It is no progress: the claims that brought nothing go on being counted.
        counted = lease.row.claims if claims is None else claims
        write = Write(lease, [draft], row={"claims": counted})
        outcome = engine.backend.append([write])[0]
        if isinstance(outcome, Fenced) and self._is_ours(lease):
            return  # A write of ours went through in the dark: again at the next beat.
        engine.given_back(lease)

    def _is_ours(self, lease: Lease) -> bool:
        """Look at a run whose row is not as we knew it; go on from there if it is still ours."""
        row = self._engine.backend.get(lease.row.run_id)
        if row is None or (row.epoch, row.owner) != (lease.row.epoch, lease.row.owner):
            return False
        lease.row = row
        return True


def _release(stop: threading.Lock) -> None:
    with contextlib.suppress(RuntimeError):  # It was released before.
        stop.release()


def _beat_until(stop: threading.Lock, every_s: float, weak: Callable[[], Heartbeat | None]) -> None:
    """Beat until `stop` is released: by `close`, or because nobody refers to the heartbeat any more."""
    while not stop.acquire(timeout=every_s):
        heartbeat = weak()
        if heartbeat is None:
            return
        heartbeat.run_once()
        del heartbeat  # Do not keep it while waiting.
