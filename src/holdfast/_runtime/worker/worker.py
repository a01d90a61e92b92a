"""The worker: takes runs that are due and executes them, for as long as it lives.

    look ─► take a batch, as many as there are free slots ─► execute each in its slot
      ▲                                                            │
      └── a commit notified, a slot became free, or a second passed ◄─┘

One thread takes. Commits wake it (`Bell`), and it also looks about every second, at a random moment,
so that many workers do not look at once. A worker never has more runs than it can execute: whatever
a dead process left behind, the workers with free slots take batch by batch.

A graceful shutdown (drain) takes nothing more, waits for the runs at work, stops the rest at their
next durable call, and releases them: other workers continue at once.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import msgspec

from holdfast._engine.journal.rows import Lease, RunRow
from holdfast._engine.journal.step_keys import check_label
from holdfast._engine.values.durations import is_seconds
from holdfast._runtime import log as logs, registry, worker_log
from holdfast._runtime.clocks import CHANCE, Thread
from holdfast._runtime.commit.listener import Bell
from holdfast._runtime.commit.store_health import StoreHealth
from holdfast._runtime.engine import Engine
from holdfast._runtime.execution import claim_entries
from holdfast._runtime.execution.frames import current_task
from holdfast._runtime.execution.inbox import free_all_settled
from holdfast._runtime.feature import installed
from holdfast._runtime.queues import declare_limits
from holdfast._runtime.registry import RegisteredFlow
from holdfast._runtime.worker.recovery_pass import Untried
from holdfast._runtime.worker.slots import Place, Slots
from holdfast._runtime.worker.suspects import Hunger, log_suspects, why_alone
from holdfast._stores.claim_rules import queue_of
from holdfast._stores.contract import Again, Wanted
from holdfast.errors import UsageError

if TYPE_CHECKING:
    import asyncio

    from holdfast._runtime.engine import Engine

BATCH = 50
LOOK_S = 0.7
"""How long a worker goes without a look at the store, when nothing rings."""
HERD_S = 0.002
"""Within which the workers that one commit woke look at the store, each at a moment of chance."""
QUIET_S = 0.05
"""The longest pause before the next look, while commits ring and there is nothing to take."""
BACKOFF_S, BACKOFF_MAX_S = 0.1, 5.0
QUEUES_MAX = 100
"""How many queues, by chance, one look is at."""
STRANGERS = 8
"""One look in so many is at all queues, also those of which nothing was taken before."""
GRACE_S = 2.0
"""How long a run may take to stop, until it is left to its lease."""


class Worker:
    """Executes runs of a store in this process: a context manager, sync or async."""

    def __init__(
        self,
        engine: Engine,
        *,
        flows: Iterable[Any] | None = None,
        queues: Iterable[str] | None = None,
        concurrency: int = 50,
        drain_s: float = 20.0,
        name: str | None = None,
        declares: bool = True,
    ) -> None:
        if type(concurrency) is not int or concurrency < 1:
            raise UsageError(f"worker(concurrency={concurrency!r}): a whole number above 0")
        if not is_seconds(drain_s):
            raise UsageError(f"worker(drain_s={drain_s!r}): seconds, not less than 0")
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.concurrency = concurrency
        self.drain_s = drain_s
        self.taken = 0
        """Runs taken so far."""
        self.store_health = StoreHealth(self.name, engine.backend.url, lambda: engine.closed)
        self._engine = engine
        self._given = None if flows is None else _checked(flows)
        self._queues = _named(queues)
        self._met: list[str] = list(self._queues or ())
        self._declares = declares
        self._hunger = Hunger()
        self._ending = threading.Event()
        self._bell = Bell()
        self._slots = Slots(engine, concurrency, self._bell.ring)
        self._keys_after = ""
        self._untried = Untried(engine)
        self._again: list[tuple[str, Again]] = []
        """Held runs that the code here has not tried: the queue that they are in, and what they are
        held on."""
        self._rounds = Rounds(engine, self._versions, self._flows, self._look_at_held)
        self._taker = Thread(target=self._run, name="holdfast-worker")

    # -- for people ----------------------------------------------------------------------------

    def __repr__(self) -> str:
        return f"<worker {self.name}: {self.working} of {self.concurrency} at work>"

    @property
    def working(self) -> int:
        """How many runs are at work now."""
        return self.concurrency - self._slots.free

    @property
    def saturation(self) -> float:
        """How much of the worker is in use, from 0 to 1."""
        return self.working / self.concurrency

    @property
    def draining(self) -> bool:
        """Whether it takes nothing more."""
        return self._ending.is_set()

    @property
    def trouble(self) -> Exception | None:
        """Why the store cannot be used, until it can again."""
        return self.store_health.trouble

    def works_on(self, run_id: str) -> bool:
        """Return whether a run is in one of its places, or on its way there."""
        return any(place.run_id == run_id for place in self._slots.places())

    def places(self) -> list[Place]:
        """Return the runs at work, longest first."""
        return self._slots.places()

    def facts(self) -> str:
        """Return the facts that each pulse carries."""
        alone = self._slots.alone()
        told = {
            "worker": self.name,
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "queues": None if self._queues is None else list(self._queues),
            "flows": {name: list(versions) for name, versions in self._versions().items()},
            "concurrency": self.concurrency,
            "working": self.working,
            "saturation": round(self.saturation, 3),
            "draining": self.draining,
            "alone": None if alone is None else why_alone(alone),
            "emptying": self._hunger.is_emptying,
        }
        return msgspec.json.encode(told).decode()

    # -- its life ------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if current_task() is not None:
            raise UsageError(
                "`with store.worker(…)` in an event loop would block it at its end; write "
                "`async with store.worker(…)`"
            )
        self._begin(None)
        return self

    def __exit__(self, *exc: object) -> None:
        self.drain()

    async def __aenter__(self) -> Self:
        import asyncio

        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._engine.threads(), self._begin, loop)
        return self

    async def __aexit__(self, *exc: object) -> None:
        import asyncio

        loop = asyncio.get_running_loop()
        draining = loop.run_in_executor(self._engine.threads(), self.drain)
        try:
            await asyncio.shield(draining)
        except asyncio.CancelledError:
            await draining  # Release the runs first, also in a hurry.
            raise

    def _begin(self, loop: asyncio.AbstractEventLoop | None) -> None:
        if self._taker.ident is not None:
            raise UsageError("a worker works once; make another: store.worker(…)")
        if not self._flows():
            raise UsageError(
                "a worker needs flows: none is known in this process; import the modules that "
                "define them, or give flows=[…]"
            )
        engine = self._engine
        with engine.admission_lock.taking():
            if engine.worker is not None:
                raise UsageError(
                    f"the store {engine.backend.url} has a worker in this process already; give that "
                    "one more concurrency, or open the store once more with default=False"
                )
            engine.worker = self
        try:
            if self._declares:
                declare_limits(engine.backend, self._flows().values())
            self._slots.run_in(loop)
            engine.facts = self.facts
            engine.backend.pulse(engine.owner(), self.facts(), ())
            self._rounds.make()
        except BaseException:
            engine.worker = None
            raise
        engine.heartbeat.ensure()
        self._bell.start(engine.listener)
        self._taker.start()

    def drain(self) -> None:
        """Take nothing more, wait for what is at work, give back what is left; then end."""
        if self._ending.is_set():
            return
        self._ending.set()
        self._bell.close()
        try:
            if self._taker.ident is not None:
                self._taker.join()
                self._pulse()
                self._slots.wait_until_idle(self.drain_s)
        finally:
            self._slots.stop()
            self._slots.wait_until_idle(GRACE_S)
            self._slots.let_go()
            self._slots.close()
            self._end()

    def _end(self) -> None:
        engine = self._engine
        if engine.worker is self:
            engine.worker = None
            engine.facts = lambda: "{}"
            self._pulse()

    def _pulse(self) -> None:
        """Let the fleet see at once what has changed."""
        engine = self._engine
        if engine.closed or self._taker.ident is None:
            return
        try:
            engine.backend.pulse(engine.owner(), engine.facts(), ())
        except Exception as error:
            logs.warning("the worker's last pulse was not written: %s", error)

    # -- what it can execute -------------------------------------------------------------------

    def _flows(self) -> Mapping[str, RegisteredFlow]:
        """Return the flows that it executes, by name and alias."""
        if self._given is not None:
            return self._given
        return {name: flow for name, flow in registry.flows.items() if not flow.is_method}

    def _versions(self) -> dict[str, Sequence[str]]:
        return {name: flow.runs_versions for name, flow in self._flows().items()}

    def _look_at_held(self) -> None:
        """Look at runs that some code could not replay: which of them are to be tried here. And at those
        that are held on keys of others: whether they still have to be."""
        self._keys_after = free_all_settled(self._engine, self._keys_after)
        self._slots.look_at_unfit()
        found = self._untried.look(self._flows(), self._queues)
        self._again = [(tried.queue, again) for tried, again in found]

    # -- taking --------------------------------------------------------------------------------

    def _run(self) -> None:
        quiet_s = 0.0
        failures = 0
        while not self._ending.is_set() and not self._engine.closed:
            self._bell.muffle()
            wanted = self._room()
            try:
                got = self._look(wanted)
                failures = 0
            except Exception:
                failures += 1
                pause_s = min(BACKOFF_MAX_S, BACKOFF_S * 2 ** min(failures - 1, 16))
                self._ending.wait(pause_s * CHANCE.uniform(0.5, 1.0))
                continue
            if got == wanted and wanted:
                continue
            quiet_s = 0.0 if got else min(QUIET_S, max(quiet_s * 2, HERD_S))
            look_s = min(LOOK_S * CHANCE.uniform(0.7, 1.2), self._rounds.until_s())
            moment = CHANCE.uniform(0, 1)
            if not self._bell.wait(look_s, moment * quiet_s, moment * HERD_S):
                quiet_s = 0.0

    def _look(self, wanted: int) -> int:
        """Do what is due and take runs. One that is full only sees whether the store is there."""
        if not wanted and not self.store_health.is_due():
            self._rounds.make()
            return 0
        with self.store_health.asking("take"):
            self._rounds.make()
            if wanted:
                return self._take(wanted)
            self._engine.backend.by_number(0)
            return 0

    def _room(self) -> int:
        """Return how many runs may be taken: none beside a suspect, nor while room is made for one."""
        if self._slots.alone() is not None:
            return 0
        if self._hunger.is_emptying:
            return 0 if self.working else 1
        return min(self._slots.free, BATCH)

    def _take(self, limit: int) -> int:
        if self._hunger.is_emptying:
            return self._take_suspect()
        got, passed_over = self._take_again(limit), False
        for queues in self._orders() if got < limit else ():
            taken, passed = self._take_from(queues, limit - got)
            got, passed_over = got + taken, passed_over or passed
            if got == limit:
                break
        self._hunger.looked(passed_over, got < limit)
        if passed_over and not self.working:
            return self._take_suspect()
        return got

    def _take_again(self, limit: int) -> int:
        """Take runs that are held as diverged and that the code here has not tried: as many as there
        is room for, and the others at the next look."""
        got = 0
        while self._again and got < limit:
            queue, again = self._again[0]
            got += self._take_from([queue], limit - got, again=again)[0]
            if got < limit:
                self._again.pop(0)
        return got

    def _take_suspect(self) -> int:
        """Take a run that may kill this process, with nothing else in it."""
        self._hunger.asked()
        got = any(self._take_from(queues, 1, suspects=True)[0] for queues in self._orders())
        if got:
            self._pulse()  # The fleet sees at once why this worker takes nothing else.
        return got

    def _orders(self) -> list[list[str] | None]:
        """Return the queues in the order in which to look at them: random, so that none starves another.
        Where all are welcome, those that are known by now come first, and then any."""
        known = CHANCE.sample(self._met, min(len(self._met), QUEUES_MAX))
        if self._queues is not None:
            return [known]
        if len(known) < 2 or CHANCE.randrange(STRANGERS) == 0:
            return [None]
        return [known, None]

    def _take_from(
        self,
        queues: list[str] | None,
        limit: int,
        *,
        suspects: bool = False,
        again: Again | None = None,
    ) -> tuple[int, bool]:
        """Take and execute; returns how many, and whether a suspect was left out."""
        engine, slots = self._engine, self._slots
        with engine.admission_lock.taking():
            at_work = {*slots.numbers(), *(execution.run_no for execution in engine.executing())}
            wanted = Wanted(
                owner=engine.owner(),
                limit=limit,
                at_us=engine.now_us(),
                flows=self._versions(),
                queues=queues,
                working=at_work,
                unfit=slots.unfit(),
                suspects=suspects,
                again=again,
            )
            leases = engine.backend.take(wanted)
            log_suspects(self._engine.backend, wanted, leases)
            claim_entries.quarantined(self._engine, wanted.quarantined)
            flows = self._flows()
            self.taken += len(leases)
            for lease in leases:
                self._met_queue(lease)
                if again is not None:
                    worker_log.tried_again(lease.row)
                slots.give(flows[lease.row.flow], lease)
        return len(leases), wanted.passed_over

    def _met_queue(self, lease: Lease) -> None:
        name = queue_of(lease.row)
        if name not in self._met:
            self._met.append(name)


def _checked(flows: Iterable[Any]) -> dict[str, RegisteredFlow]:
    found: dict[str, RegisteredFlow] = {}
    for flow in flows:
        if not isinstance(flow, RegisteredFlow):
            raise UsageError(f"worker(flows=[…]): {flow!r} is no flow; decorate it with @flow")
        if flow.is_method:
            raise UsageError(
                f"worker(flows=[…]): {flow.name} is a method, and a worker has no object to call "
                "it on; make the flow a function"
            )
        for name in (flow.name, *flow.aliases):
            found[name] = flow
    if not found:
        raise UsageError("worker(flows=[]): give it flows, or leave flows= out for all of them")
    return found


def _named(queues: Iterable[str] | None) -> tuple[str, ...] | None:
    if queues is None:
        return None
    if isinstance(queues, str):
        raise UsageError(f"worker(queues={queues!r}): a list of names, as in queues=[{queues!r}]")
    names = tuple(dict.fromkeys(check_label("the name of a queue", name) for name in queues))
    if not names:
        raise UsageError("worker(queues=[]): give it names, or leave queues= out for all of them")
    return names


# -- periodic work -----------------------------------------------------------------------------


LOOK_US = 20_000_000
"""How often a worker looks for runs whose version no live worker executes."""
SEEN_AT_ONCE = 500

Versions = Mapping[str, Sequence[str]]


class Rounds:
    """The jobs of a worker besides taking runs, in the thread that takes them: those of
    features, and saying which runs nobody can take."""

    def __init__(
        self,
        engine: Engine,
        versions: Callable[[], Versions],
        flows: Callable[[], Mapping[str, Any]],
        looks: Callable[[], None],
    ) -> None:
        """`looks` is what the worker looks at itself as often as at runs that wait in vain."""
        self._looks = looks
        self._engine = engine
        self._versions = versions
        self._jobs = [make(engine, flows) for make in installed.periodic]
        self._due_us = 0
        self._look_us = 0
        self._told: set[tuple[str, str]] = set()

    def make(self) -> None:
        """Do what is due."""
        now_us = self._engine.now_us()
        if now_us >= self._look_us:
            self._look_us = now_us + LOOK_US
            self._say_what_waits_in_vain()
            self._looks()
        due_us = [at_us for job in self._jobs if (at_us := job.run()) is not None]
        self._due_us = min(due_us, default=now_us + LOOK_US)

    def until_s(self) -> float:
        """Return how long nothing is due."""
        return max(0.0, (self._due_us - self._engine.now_us()) / 1e6)

    def _say_what_waits_in_vain(self) -> None:
        """A deployment left runs behind that only its own code can go on with: say so, once."""
        kept, known = self._engine.backend, self._versions()
        waiting: dict[tuple[str, str], list[RunRow]] = {}
        for row in kept.claimable(self._engine.now_us(), SEEN_AT_ONCE):
            if row.version not in known.get(row.flow, (row.version,)):
                waiting.setdefault((row.flow, row.version), []).append(row)
        if not waiting:
            return
        alive = [_flows(pulse.facts) for pulse in kept.pulses()]
        for (flow, version), rows in waiting.items():
            served = any(version in flows.get(flow, ()) for flows in alive)
            if served or (flow, version) in self._told:
                continue
            self._told.add((flow, version))
            logs.warning(
                "%s of version %s of flow %s (such as %s) cannot go on: no live worker executes that "
                "version, this one executes %s. Start a worker that has it, or say that newer code "
                "can go on with it: @flow(…, accepts_versions=(%r,))",
                "1 run" if len(rows) == 1 else f"{len(rows)} runs",
                *(version, flow, rows[0].run_id),
                *(" and ".join(known[flow]), version),
            )


def _flows(facts: str) -> dict[str, Any]:
    """Return what a live process says that it executes; one that is no worker says nothing."""
    try:
        told = msgspec.json.decode(facts, type=dict[str, Any])
        return msgspec.convert(told.get("flows", {}), dict[str, Any])
    except msgspec.MsgspecError:
        return {}
