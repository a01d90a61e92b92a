"""The engine: what one opened store needs to execute runs in this process.

It is made when a store is opened and holds the committer, the heartbeat, this process's number as
an owner, the runs at work here, and the resources that steps use. After a fork the child's
engines start anew: threads, locks and leases of the parent are not the child's.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from holdfast._engine.journal.history import History
from holdfast._engine.journal.rows import KeyState, Lease, RunRow, Write
from holdfast._engine.scripts.stops import Unwind, Waiting
from holdfast._engine.values.chunks import Values
from holdfast._engine.values.redactor import Redact
from holdfast._engine.values.secrets import masking
from holdfast._runtime import interrupt_shield, log as logs, observer_registry
from holdfast._runtime.clocks import Clock, SystemClock, Thread
from holdfast._runtime.commit.committer import Committer, Ticket
from holdfast._runtime.commit.heartbeat import Heartbeat, OwnedRun, Worker
from holdfast._runtime.commit.listener import Listener
from holdfast._runtime.commit.task_wakeup import Waker
from holdfast._runtime.feature import CommitListener, installed
from holdfast._runtime.inbox_poller import InboxPoller, ListeningRun
from holdfast._runtime.resources import Resources
from holdfast._stores import lineage
from holdfast._stores.contract import Store
from holdfast.errors import ClassChanged, Corrupt, RunBusy, RunError, UsageError

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import ThreadPoolExecutor


BEATS_PER_LEASE = 3
CLOSING_S = 2.0
"""How long the end waits for runs that only wait to be given back."""
LEAVING_S = 5.0
"""How long a caller waits for an execution here whose last write is committed."""
LIMITS = "Look at the limits of threads and memory (`ulimit -u`, pids of the container)"
THREADS_MAX = 256
HEARD_TOGETHER = 64
"""How many committed writes are kept for the listeners of features at most."""
DEFAULT_URL = "sqlite:///holdfast.db"

_engines: weakref.WeakSet[Engine] = weakref.WeakSet()


class HasEngine(Protocol):
    """An opened store, as far as flows know it."""

    @property
    def _engine(self) -> Engine:
        """The engine that executes its runs."""
        ...


def no_thread(error: RuntimeError) -> str:
    """Return the message that this process cannot start a thread."""
    count = threading.active_count()
    return f"this process, which has {count} threads, cannot start another one ({error})"


class ActiveRun(OwnedRun, ListeningRun, Protocol):
    """A run at work in this process, as the engine knows it: an `Execution`."""

    @property
    def awaits(self) -> bool:
        """Whether a task executes it, and no thread."""
        ...

    def idle(self) -> list[Waiting]:
        """Return what the run waits for, if it does nothing else."""
        ...

    def left_to_parent(self) -> None:
        """In a forked child: this run is another process's."""
        ...


class ActiveWorker(Worker, Protocol):
    """The worker of this process, as the engine knows it."""

    def works_on(self, run_id: str) -> bool:
        """Return whether it has the run."""
        ...


class Engine:
    """Executes runs of one store in this process."""

    def __init__(self, backend: Store, clock: Clock | None = None) -> None:
        self.backend = backend
        self.clock: Clock = clock or SystemClock()
        self.now_us = backend.now_us
        self.closed = False
        self.address: str | None = None
        """The URL that it was opened with, for processes of ours; it may have a password in it."""
        self.own_redact: Redact | None = None
        """The function of `holdfast.open(redact=…)`."""
        self.options: dict[str, Any] = {}
        """The options of features from the opening of the store, by feature."""
        self._lock = threading.RLock()
        self._left = threading.Condition(self._lock)
        self._fresh()
        _engines.add(self)

    def _fresh(self) -> None:
        self.committer = Committer(self.backend, self.wrote)
        self.listeners: tuple[CommitListener, ...] = tuple(
            make(self) for make in installed.listener
        )
        self._unheard: deque[Write] = deque()
        self.heartbeat = Heartbeat(self, self.backend.lease_s / BEATS_PER_LEASE)
        self.facts: Callable[[], str] = _facts
        """The facts about this process that each pulse carries (JSON)."""
        self.admission_lock = AdmissionLock()
        self.listener = Listener(self.backend)
        if self.closed:
            self.listener.close()
        self.inbox_poller = InboxPoller(self)
        self.worker: ActiveWorker | None = None
        self._owner: int | None = None
        self._active: dict[str, ActiveRun] = {}
        self.at_large: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        """Threads of attempts whose time was up: nobody can stop them."""
        self._admitting: set[str] = set()
        self._abandoned: list[Lease] = []
        self._threads: ThreadPoolExecutor | None = None
        self._resources = Resources()
        self._wakers: weakref.WeakKeyDictionary[Any, Waker] = weakref.WeakKeyDictionary()

    @property
    def namespace_id(self) -> str:
        """The base of idempotency keys: unique per store and namespace."""
        return f"{self.backend.store_id}/{self.backend.namespace}"

    def owner(self) -> int:
        """Return this process's number as an owner; registered when it is first needed."""
        with self._lock:
            if self.closed:
                raise UsageError(f"the store {self.backend.url} is closed")
            if self._owner is None:
                self._owner = self.backend.register_owner()
            return self._owner

    @property
    def owned_as(self) -> int | None:
        """This process's number as an owner, if it has one by now."""
        return self._owner

    def wrote(self, write: Write) -> None:
        """A write of a run is committed. Observers are notified now, listeners of features soon."""
        if self.listeners:
            self._unheard.append(write)
            if len(self._unheard) >= HEARD_TOGETHER:
                self.hear()
        if observer_registry.observers:
            observer_registry.wrote(self.backend, write)

    def hear(self) -> None:
        """Notify the listeners of features of what was committed since the last time."""
        writes: list[Write] = []
        with contextlib.suppress(IndexError):  # Another thread may take some of them.
            while True:
                writes.append(self._unheard.popleft())
        if writes:
            for listener in self.listeners:
                listener.wrote(writes)

    # -- runs at work --------------------------------------------------------------------------

    def enter(self, execution: ActiveRun) -> None:
        """Take note of a run that is at work here."""
        with self._lock:
            self._active[execution.run_id] = execution
        try:
            self.heartbeat.ensure()
            self.inbox_poller.ensure()
        except RuntimeError as error:
            told = self.without_thread(execution, error)
            with self._left:
                self._active.pop(execution.run_id, None)
                self._left.notify_all()
            raise told from error

    @contextlib.contextmanager
    def admitting(self, run_id: str) -> Generator[None, None, None]:
        """Keep a run id to one caller of this process while it is being admitted."""
        is_free = run_id in self._active and self._is_free(run_id)
        with self._left:
            # One whose last write is through is seen by others as free, and is about to leave.
            self._left.wait_for(lambda: not self._is_leaving(run_id, is_free), LEAVING_S)
            if run_id in self._active or run_id in self._admitting:
                raise RunBusy(run_id, "this process")
            self._admitting.add(run_id)
        try:
            with self.admission_lock.admitting():
                if self.worker is not None and self.worker.works_on(run_id):
                    raise RunBusy(run_id, "the worker of this process")
                yield
        finally:
            self._admitting.discard(run_id)

    def _is_free(self, run_id: str) -> bool:
        """Return whether nobody has a run any more, by the store: its last write may be through before
        the thread that waits for it has noticed."""
        row = self.backend.get(run_id)
        return row is not None and row.owner is None

    def _is_leaving(self, run_id: str, is_free: bool) -> bool:
        execution = self._active.get(run_id)
        return execution is not None and (is_free or execution.lease.row.owner is None)

    def leave(self, execution: ActiveRun) -> None:
        """Forget a run that has ended or was given back."""
        with self._left:
            if self._active.get(execution.run_id) is not execution:
                return
            del self._active[execution.run_id]
            self._left.notify_all()
        self.hear()
        for listener in self.listeners:
            listener.left(execution.run_no)
        observer_registry.left(self.backend, execution.lease.row)

    def is_executing(self, run_id: str) -> bool:
        """Return whether this process is at work on the run."""
        return run_id in self._active

    def executing(self) -> list[ActiveRun]:
        """Return the runs at work here."""
        with self._lock:
            return list(self._active.values())

    def abandon(self, lease: Lease) -> None:
        """Remember a run that is not worked on and could not be given back: the heartbeat tries
        again until it is, because the pulse of this process keeps it from all others."""
        with self._lock:
            self._abandoned.append(lease)
        with contextlib.suppress(RuntimeError):  # Without a thread, the next run starts it.
            self.heartbeat.ensure()

    def in_thread(self, execution: ActiveRun, work: Callable[[], None]) -> threading.Thread:
        """Execute a run that was taken in a thread of its own. If none can be started, the run is
        released, and its caller gets an error."""
        name = f"holdfast-run-{execution.run_id}"
        thread = Thread(target=work, name=name)
        try:
            thread.start()
        except RuntimeError as error:
            told = self.without_thread(execution, error)
            self.leave(execution)
            raise told from error
        return thread

    def without_thread(self, execution: ActiveRun, error: RuntimeError) -> RunError:
        """Release a claimed run for which no thread can be started; returns the error for its
        caller."""
        run_id, lease = execution.run_id, execution.lease
        given_back = "was released, so that it can be taken up again at once"
        try:
            # The run is not to blame: this claim is not counted.
            claims = lease.row.claims - 1
            self.heartbeat.give_back(lease, f"no thread could be started: {error}", claims)
        except Exception as failed:
            logs.failure("run %s could not be released yet", run_id, error=failed)
        if lease.row.owner is not None:
            self.abandon(lease)
            given_back = "is released as soon as the store can be written"
        return RunError(
            run_id,
            f"run {run_id!r} is not executed: {no_thread(error)}; the run {given_back}. {LIMITS}",
        )

    def abandoned(self) -> list[Lease]:
        """Return the leases that are still to be given back."""
        with self._lock:
            return list(self._abandoned)

    def given_back(self, lease: Lease) -> None:
        """Forget an abandoned run: it is free, or somebody else's."""
        with self._lock:
            self._abandoned = [kept for kept in self._abandoned if kept is not lease]

    def may_own(self) -> bool:
        """Return whether the leases of this process are worth a pulse."""
        with self._lock:
            if self._owner is None or self.closed:
                return False
            return bool(self.worker or self._active or self._admitting or self._abandoned)

    # -- what executions need ------------------------------------------------------------------

    @property
    def redact(self) -> Redact | None:
        """The function that redacts values before they are stored."""
        return masking(self.own_redact)

    def load(self, row: RunRow, *, whole: bool = False) -> History:
        """Return the folded history of a run; not whole, without what its snapshots replace."""
        skips: list[tuple[int, int]] = []
        if not whole:
            skips = [(int(low), int(high)) for low, high in msgspec.json.decode(row.skips)]
        history = lineage.fold(self.backend, row, skips)
        history.generation = row.generation
        return history

    def values(self, row: RunRow) -> Values:
        """Return the value space of a run."""
        values = Values(lineage.chunks_of(self.backend, row), next_chunk=row.next_chunk)
        values.redact = self.redact
        return values

    def value(self, row: RunRow, node: bytes) -> Any:
        """Return a stored value of a run that is not executed here."""
        try:
            return self.values(row).decode(node)
        except ClassChanged as changed:
            raise changed.in_run(row.run_id) from None

    def result_of(self, key: KeyState) -> Any:
        """Return the result that the holder of a business key recorded."""
        what = f"the result of key {key.key!r} ({key.effect})"
        if key.result_seq is None:
            raise Corrupt(what, run_id=key.run_id, why="the key is completed but names no entry")
        row = self.backend.by_number(key.run_no)
        entry = self.backend.entry(key.run_no, key.result_seq)
        if row is None or entry is None:
            raise Corrupt(what, run_id=key.run_id, why=f"entry {key.result_seq} is missing")
        return self.value(row, bytes(entry.data()["result"]))

    def resource(self, factory: Callable[[], Any]) -> Any:
        """Return what `resource(factory)` stands for: built once per store."""
        return self._resources.get(factory)

    def threads(self) -> ThreadPoolExecutor:
        """Return the pool in which sync steps of async flows run."""
        with self._lock:
            if self._threads is None:
                from concurrent.futures import ThreadPoolExecutor

                self._threads = ThreadPoolExecutor(THREADS_MAX, "holdfast-step")
            return self._threads

    def wakes(self, loop: asyncio.AbstractEventLoop) -> Callable[[Ticket], None]:
        """Return a callback for tickets that wakes the awaiting tasks in their loop."""
        waker = self._wakers.get(loop)
        if waker is None:
            waker = self._wakers[loop] = Waker(loop)
        return waker.wake

    # -- the end -------------------------------------------------------------------------------

    def close(self) -> None:
        """Stop everything; runs that are still at work here are left to the next owner."""
        if self.closed:
            return
        self._give_back_waiting()
        self.closed = True
        self.listener.close()
        self.heartbeat.close()
        self.inbox_poller.close()
        self.committer.close()
        for listener in self.listeners:
            listener.close()
        if self._threads is not None:
            self._threads.shutdown(wait=False)
        self._resources.clear()
        at_large = any(thread.is_alive() for thread in self.at_large)
        self.backend.close(at_work=bool(self._active) or at_large)

    def _give_back_waiting(self) -> None:
        """Runs that only wait here are given back: another process may wait for them as well."""
        waiting = [run for run in self.executing() if run.idle()]
        for run in waiting:
            told = RunError(run.run_id, f"run {run.run_id!r} was released: the store is closed")
            run.stop(Unwind(told, released="closed"), later=True)
        with self._left:
            self._left.wait_for(lambda: not any(map(self._is_at_work, waiting)), CLOSING_S)

    def _is_at_work(self, run: ActiveRun) -> bool:
        """Return whether a thread works on the run; a task cannot end while its loop stands still."""
        return not run.awaits and self._active.get(run.run_id) is run

    def after_fork(self) -> None:
        """Start anew in a forked child. The runs at work are the parent's: a call of theirs in the
        child writes nothing."""
        self._lock = threading.RLock()
        self._left = threading.Condition(self._lock)
        for execution in self._active.values():
            execution.left_to_parent()
        self._fresh()


def _facts() -> str:
    return msgspec.json.encode({"pid": os.getpid(), "host": os.uname().nodename}).decode()


# -- the process's default -------------------------------------------------------------------

_default: Engine | None = None
_opening = threading.Lock()


def set_default(engine: Engine) -> None:
    """Make an engine the one that runs use when no other is named."""
    global _default
    if _default is not None and not _default.closed:
        raise UsageError(
            f"this process has a default store already ({_default.backend.url}); close it first, "
            "or open this one with default=False and pass it with flow.with_options(store=…)"
        )
    _default = engine


def default_engine() -> Engine:
    """Return the process's default, opening HOLDFAST_URL or ./holdfast.db if there is none."""
    if _default is not None and not _default.closed:
        return _default
    with _opening:
        return _opened_default()


def opened_default() -> Engine | None:
    """Return the process's default if there is one; opens nothing."""
    return _default if _default is not None and not _default.closed else None


def url_at_hand() -> str:
    """Return the default address: HOLDFAST_URL, or ./holdfast.db, which is printed."""
    url = os.environ.get("HOLDFAST_URL")
    if url:
        return url
    print(f"holdfast: runs are kept in {os.path.abspath('holdfast.db')}", file=sys.stderr)  # noqa: PTH100, T201
    return DEFAULT_URL


def _opened_default() -> Engine:
    if _default is not None and not _default.closed:
        return _default
    from holdfast._stores.locate import open_store

    url = url_at_hand()
    engine = Engine(open_store(url))
    engine.address = url
    set_default(engine)
    return engine


def any_executing() -> bool:
    """Return whether any run is at work in this process."""
    return any(engine.executing() for engine in opened())


def opened() -> list[Engine]:
    """Return the engines of this process that are not closed."""
    return [engine for engine in list(_engines) if not engine.closed]


def _after_fork() -> None:
    interrupt_shield.after_fork()
    for engine in list(_engines):
        engine.after_fork()


def _at_exit() -> None:
    """End the threads of stores that nobody closed, before the interpreter takes itself apart: a
    thread that is killed in the middle of a query leaves memory in disorder. Temporary files of
    theirs go afterwards."""
    unclosed = [engine for engine in list(_engines) if not engine.closed]
    for engine in unclosed:
        engine.inbox_poller.close()
        engine.heartbeat.close()
        for listener in engine.listeners:
            listener.close()
    if any(engine.backend.url == "memory:" for engine in unclosed):
        from holdfast._stores import temporary_folders

        temporary_folders.remove_all()


atexit.register(_at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


# -- admitting and taking ----------------------------------------------------------------------


class AdmissionLock:
    """The admission lock: callers that admit runs exclude a worker that takes some, first come, first served.

    There are two ways to come by a run: a caller admits it, or the worker takes it. A worker may take
    again what its own process owns and nobody works on: a run that was dropped when the store could not
    be reached. A run that is just being admitted looks the same in the store, so the worker does not look
    while somebody admits: any number admit at once, or one takes.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._admitting = 0
        self._taking = 0
        """The number of takers, waiting ones included."""

    @contextlib.contextmanager
    def admitting(self) -> Generator[None, None, None]:
        """Admit a run, beside others who do."""
        with self._changed:
            self._changed.wait_for(lambda: not self._taking)
            self._admitting += 1
        try:
            yield
        finally:
            with self._changed:
                self._admitting -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def taking(self) -> Generator[None, None, None]:
        """Take runs while nobody admits any."""
        with self._changed:
            self._taking += 1
            self._changed.wait_for(lambda: not self._admitting)
        try:
            yield
        finally:
            with self._changed:
                self._taking -= 1
                self._changed.notify_all()
