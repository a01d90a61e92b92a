"""The slots of a worker: where the runs that it took are executed, and the backpressure they give.

A worker takes only as many runs as it has free slots; all others stay in their queue in the store. A
sync flow occupies a thread while its run executes. An async flow is a task in an event loop: the
caller's (a web app's) or one that the worker keeps. The threads are daemons: a call that blocks for
ever must not keep a process from ending, and another process takes its run.
"""

from __future__ import annotations

import contextlib
import contextvars
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from holdfast._engine.decisions.control import MESSAGES
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.fold import DOES_NOT_FIT
from holdfast._engine.journal.lifecycle import CLAIMABLE
from holdfast._engine.journal.rows import Lease
from holdfast._engine.scripts.doubt_policies import policy_name
from holdfast._engine.scripts.stops import Unwind
from holdfast._runtime import log as logs, worker_log
from holdfast._runtime.clocks import Thread
from holdfast._runtime.execution import run_end
from holdfast._runtime.execution.admission import execution_of
from holdfast._runtime.execution.execute import finish_async
from holdfast._runtime.execution.execution import Code
from holdfast._runtime.execution.inbox import absorb
from holdfast._runtime.worker.suspects import at_work_alone
from holdfast.errors import LeaseLost, RunError

if TYPE_CHECKING:
    import asyncio

    from holdfast._engine.journal.rows import RunRow
    from holdfast._runtime.commit.committer import Ticket
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.execution.execution import Execution
    from holdfast._runtime.registry import RegisteredFlow

LOADING_THREADS = 4
"""How many histories of async runs are read at one time."""
REST_S, REST_MAX_S = 1.0, 30.0
"""How long a run that could not be given back is left alone, at first and at most."""
IDLE_S = 30.0
"""After which a thread that has nothing to do ends."""

Job = Callable[[], None]


class Place:
    """One run at work."""

    __slots__ = ("begun", "execution", "flow", "lease", "since_us", "task")

    def __init__(self, flow: RegisteredFlow, lease: Lease, since_us: int) -> None:
        self.flow = flow
        self.lease = lease
        self.since_us = since_us
        self.execution: Execution | None = None
        self.task: asyncio.Task[None] | None = None
        self.begun = False
        """Whether its task has come to its first line."""

    @property
    def run_id(self) -> str:
        """Which run it is."""
        return self.lease.row.run_id


class Slots:
    """Executes what it is given, in at most `size` places."""

    def __init__(
        self,
        engine: Engine,
        size: int,
        on_free: Callable[[], None],
    ) -> None:
        self.size = size
        self._engine = engine
        self._on_free = on_free
        self._loop: asyncio.AbstractEventLoop | None = None
        self._own_loop: Loop | None = None
        self._places: dict[int, Place] = {}
        self._dropped: dict[int, tuple[int, float]] = {}
        """Runs that ended here without being given back: how often, and until when they rest."""
        self._unfit: dict[int, int] = {}
        """Runs of older versions that the code here does not fit, with their last entries."""
        self._busy_s, self._counted_s = 0.0, time.monotonic()
        self._changed = threading.Condition()
        self._stopping: Unwind | None = None
        self._threads = Threads("holdfast-run", size)
        self._loading = Threads("holdfast-load", LOADING_THREADS)

    def run_in(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """Execute async flows in this event loop; None is one of the worker's own."""
        self._loop = loop
        for listener in self._engine.listeners:
            listener.works_in(self)

    @property
    def free(self) -> int:
        """How many more runs can be at work."""
        return self.size - len(self._places)

    def busy_s(self) -> float:
        """Return for how long places were in use so far, all of them together."""
        with self._changed:
            self._count()
            return self._busy_s

    def _count(self) -> None:
        """Count up to now, before the number of places in use changes."""
        now_s = time.monotonic()
        self._busy_s += len(self._places) * (now_s - self._counted_s)
        self._counted_s = now_s

    def numbers(self) -> list[int]:
        """Return the numbers of the runs that are not to be taken again: those at work, and for a
        while those that could not be given back, or a store in trouble would see them five times
        in a moment and quarantine them."""
        now_s = time.monotonic()
        with self._changed:
            resting = [number for number, (_, until) in self._dropped.items() if until > now_s]
            return [*self._places, *resting]

    def unfit(self) -> set[int]:
        """Return the numbers of the runs that the code here could not replay; of those at work,
        nobody knows yet."""
        with self._changed:
            return {*self._unfit, *self._places}

    def look_at_unfit(self) -> None:
        """Forget the runs that the code here did not fit and whose journal has grown since; a note that
        other code does not fit them either does not count."""
        for run_no, seen in list(self._unfit.items()):
            row = self._engine.backend.by_number(run_no)
            last = None
            if row is not None and row.status in CLAIMABLE and row.last_seq != seen:
                last = self._engine.backend.entry(run_no, row.last_seq)
            with self._changed:
                if last is not None and DOES_NOT_FIT in last.body and row is not None:
                    self._unfit[run_no] = row.last_seq
                elif row is None or row.last_seq != seen:
                    self._unfit.pop(run_no, None)

    def alone(self) -> RunRow | None:
        """Return the run beside which nothing may be at work here, if there is one."""
        with self._changed:
            at_work = [(place.lease.row, place.since_us) for place in self._places.values()]
        return at_work_alone(at_work, self._engine.now_us())

    def places(self) -> list[Place]:
        """Return the runs at work, longest first."""
        with self._changed:
            return sorted(self._places.values(), key=lambda place: place.since_us)

    def give(self, flow: RegisteredFlow, lease: Lease) -> None:
        """Execute a run that was taken; returns at once."""
        place = Place(flow, lease, self._engine.now_us())
        with self._changed:
            self._count()
            self._places[lease.row.run_no] = place
        threads = self._loading if flow.awaits else self._threads
        try:
            threads.do(lambda: self._work(place))
        except RuntimeError as error:  # No more threads: that may pass, and others may have some.
            text = "run %s could not be executed"
            logs.failure(text, place.run_id, error=error, about=lease.row)
            self._abandon(place)

    # -- at work -------------------------------------------------------------------------------

    def _work(self, place: Place) -> None:
        handed_on = False
        try:
            execution = self._load(place)
            if place.flow.awaits:
                loop = self._event_loop()
                loop.call_soon_threadsafe(self._begin, loop, place, execution)
                handed_on = True
            else:
                place.flow._execute(execution)  # pyright: ignore[reportPrivateUsage]
                worker_log.completed(place.lease.row)
        except BaseException as error:
            self._tell(place, error)
        finally:
            if not handed_on:
                self._leave(place)

    def _load(self, place: Place) -> Execution:
        flow = place.flow
        worker_log.claimed(place.lease.row)
        execution = execution_of(
            self._engine, place.lease, awaits=flow.awaits, version=flow.version
        )
        execution.waits.unloads = True
        execution.code = Code(flow.code(), is_chosen=False)
        with self._changed:
            place.execution = execution
            if self._stopping is not None:
                execution.stop(_given_back(place.run_id), later=True)
        return execution

    def _begin(self, loop: asyncio.AbstractEventLoop, place: Place, execution: Execution) -> None:
        work = self._awaited(place, execution)
        place.task = loop.create_task(work, name=f"holdfast run {place.run_id}")
        place.task.add_done_callback(lambda _task: self._has_ended(place))

    async def _awaited(self, place: Place, execution: Execution) -> None:
        place.begun = True
        try:
            if execution.stopped is not None:  # Before it began: it is only to be given back.
                await finish_async(execution, run_end.raised(execution, execution.stopped))
                return
            await place.flow._execute(execution)  # pyright: ignore[reportPrivateUsage]
            worker_log.completed(place.lease.row)
        except BaseException as error:
            self._tell(place, error)
            if not isinstance(error, Exception) and self._stopping is None:
                raise
        finally:
            self._leave(place)

    def _has_ended(self, place: Place) -> None:
        """A task that was cancelled before its first moment has done nothing at all."""
        if not place.begun:
            self._abandon(place)

    def _abandon(self, place: Place) -> None:
        """Have a run given back that was never begun."""
        if place.execution is not None:
            self._engine.leave(place.execution)
        self._engine.abandon(place.lease)
        self._leave(place)

    def _leave(self, place: Place) -> None:
        row = place.lease.row
        with self._changed:
            self._count()
            self._places.pop(row.run_no, None)
            ended = place.execution
            if ended is not None and ended.recorder.upgrade and run_end.is_unfit(ended.stopped):
                self._unfit[row.run_no] = row.last_seq
            times, _ = self._dropped.pop(row.run_no, (0, 0.0))
            if row.owner is not None and row.status in CLAIMABLE:
                rests_s = min(REST_MAX_S, REST_S * 2.0 ** min(times, 16))
                self._dropped[row.run_no] = (times + 1, time.monotonic() + rests_s)
            self._changed.notify_all()
        self._on_free()

    def _tell(self, place: Place, error: BaseException) -> None:
        """Log how an execution ended that returned no result."""
        stopped = None if place.execution is None else place.execution.stopped
        if stopped is not None and stopped.unload is not None:
            worker_log.waits(place.lease.row, stopped.unload.waiting)
            return
        if stopped is not None and stopped.released is not None:
            worker_log.given_back(place.lease.row, stopped.released)
        else:
            worker_log.ended(self._engine.backend, place.lease.row, error)

    def _event_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is not None:
            return self._loop
        with self._changed:
            if self._own_loop is None:
                self._own_loop = Loop()
            return self._own_loop.loop

    # -- the end -------------------------------------------------------------------------------

    def wait_until_idle(self, timeout_s: float) -> bool:
        """Wait until nothing is at work; False if the time has passed before."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            return self._changed.wait_for(
                lambda: not self._places, max(0.0, deadline_s - time.monotonic())
            )

    def stop(self) -> None:
        """Stop all runs at work: at their next durable call, or now if they await something. Each
        run is released, and its next owner goes on from what is recorded."""
        with self._changed:
            self._stopping = _given_back("")
            places = list(self._places.values())
            for place in places:
                if place.execution is not None:
                    place.execution.stop(_given_back(place.run_id), later=True)
        for place in places:
            if place.task is not None:
                with contextlib.suppress(RuntimeError):  # The loop is closed: nothing works in it.
                    place.task.get_loop().call_soon_threadsafe(_cancel, place)

    def let_go(self) -> None:
        """Give back what is in a call that does not end; an effect at work is left as it is."""
        for place in self.places():
            about = place.lease.row
            if place.execution is not None and let_go(place.execution):
                text = "run %s is released while a call of it is still at work: its worker ends"
                logs.warning(text, place.run_id, about=about, step=about.current_step)
            elif place.execution is not None and place.execution.recorder.intents:
                _tell_of_effects(place.execution)
            else:
                text = "run %s is still in a call that does not end; it is left to its lease"
                logs.warning(text, place.run_id, about=about, step=about.current_step)

    def close(self) -> None:
        """Let the threads end when they have nothing more to do."""
        for listener in self._engine.listeners:
            listener.works_in(None)
        self._threads.close()
        self._loading.close()
        if self._own_loop is not None:
            self._own_loop.close()


def _tell_of_effects(execution: Execution) -> None:
    """Log the effects at work, which are left as they are."""
    calls = dict(execution.recorder.open_calls)
    for step in sorted(execution.recorder.intents):
        on_doubt = calls[step].spec.on_doubt if step in calls else "hold"
        store, row = execution.engine.backend, execution.lease.row
        worker_log.left_at_work(store, row, step, policy_name(on_doubt))


def _cancel(place: Place) -> None:
    """End what awaits something; what has not begun sees by itself that it is to stop."""
    if place.begun and place.task is not None:
        place.task.cancel()


def _given_back(run_id: str) -> Unwind:
    told = RunError(run_id, f"run {run_id!r} was released: its worker ends")
    return Unwind(told, released="drained")


class Threads:
    """Threads that do one job after the other; started when needed, ended when idle."""

    def __init__(self, name: str, most: int) -> None:
        self._name = name
        self._most = most
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._idle = 0
        """Threads that wait, less the jobs that wait for one."""

    def do(self, job: Job) -> None:
        """Have a job done; it waits if all threads are busy."""
        with self._lock:
            self._idle -= 1
            if self._idle < 0 and self._threads < self._most:
                self._start()
            self._jobs.put(job)

    def _start(self) -> None:
        """Start one more; if that is not possible, one that is there will do."""
        try:
            Thread(target=self._run, name=self._name).start()
        except RuntimeError:
            if not self._threads:
                self._idle += 1
                raise
        else:
            self._threads += 1
            self._idle += 1

    def _run(self) -> None:
        while True:
            try:
                job = self._jobs.get(timeout=IDLE_S)
            except queue.Empty:
                with self._lock:
                    if self._idle <= 0:
                        continue  # A job is on its way.
                    self._idle -= 1
                    self._threads -= 1
                return
            if job is None:
                return
            # What a run leaves in context variables is not for the next one.
            contextvars.Context().run(job)
            del job
            with self._lock:
                self._idle += 1

    def close(self) -> None:
        """End the threads that are idle, and the others after their job."""
        with self._lock:
            for _ in range(self._threads):
                self._jobs.put(None)


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        import asyncio

        self.loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._run, name="holdfast-loop")
        self._thread.start()

    def _run(self) -> None:
        import asyncio

        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.close()

    def close(self) -> None:
        """End the loop; what still works in it is left."""
        import asyncio

        def end() -> None:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.call_soon(self.loop.stop)

        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(end)
        self._thread.join(timeout=2)


# -- detaching a run from its user code --------------------------------------------------------


def let_go(execution: Execution) -> bool:
    """Give a run back while a plain step of it is at work: the end of a worker waits no longer. False if
    it is left to its lease: an effect is at work, or it cannot be written.

    A thread cannot be stopped. But the outcome of a plain step in it does not count: the next owner
    executes the step anew, and the store refuses what the thread writes later. With an effect at work
    the run stays as it is, and the next owner finds the effect in doubt.
    """
    engine, lease = execution.engine, execution.lease
    asked = execution.stopped is not None and execution.stopped.released in MESSAGES
    ticket = _released(execution)
    if ticket is None:
        return False
    try:
        engine.committer.wait(ticket)
        execution.recorder.settled(ticket)
    except BaseException as error:
        if not isinstance(error, Exception | Unwind):
            raise
        logs.warning("run %s could not be released: %s", execution.run_id, error)
        engine.abandon(lease)
        return False
    finally:
        engine.leave(execution)
    if asked:
        absorb(engine, execution.run_id)
    return True


def _released(execution: Execution) -> Ticket | None:
    """Queue the run's last entry, and cut its user code off from the journal: nothing that it asks
    for after this is written, since its lease is that of a row which is no more."""
    with execution.lock:
        at_work = (
            execution.recorder.intents
            or execution.recorder.parks
            or execution.history.rollback is not None
        )
        if at_work or execution.fenced:
            return None
        row = msgspec.structs.replace(execution.lease.row)
        body = msgspec.json.encode(
            {"why": "drained", "at_work": sorted(execution.recorder.open_calls)}
        )
        draft = Draft(Kind.RUN_RELEASED, execution.engine.now_us(), body=body)
        ticket = execution.recorder.write([draft])
        execution.lease = Lease(row)
        execution.stopped = Unwind(LeaseLost(execution.run_id))
        return ticket
