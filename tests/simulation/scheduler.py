"""Who moves next: a seed decides. One `Simulation` is one seed on one store."""

from __future__ import annotations

import contextlib
import hashlib
import random
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast._engine.journal.history import History, Record
from holdfast._engine.journal.lifecycle import CLAIMABLE, Status
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.journal.step_keys import name_of
from holdfast._engine.journal.superseded import superseded_by_resume
from holdfast._engine.scripts.doubt_policies import NOT_DONE, Failed
from holdfast._stores.contract import Query, Store
from holdfast.errors import HoldfastError
from holdfast.testing.clock import START_US
from holdfast.testing.internals import (
    Engine,
    FakeMachine,
    Store as Opened,
    admission,
    open_store,
)
from holdfast.testing.stores import new_sqlite_url
from tests.model.memory_store import MemoryStore, MemoryWorld
from tests.simulation.laws import Laws, Violation, has_been_tried
from tests.simulation.outside import Outside
from tests.simulation.people import People
from tests.simulation.programs import Op, edited, generate, with_waits
from tests.simulation.workers import Worker

SECOND_US = 1_000_000
LEASE_S = 30.0
MOVES_MAX = 260
HEALING_MAX = 1_500
HEALING_MAX_PER_RUN = 500
"""Forks are runs too, and all of them share the moves and the workers of the end."""
CHECK_EVERY = 40
TRIES_MAX = 12
"""A run that is held again and again, whatever people and workers do, is held for good."""


FIRST_CODE, OTHER_CODE = "1/first", "1/other"
"""Version and fingerprint of the two."""
COUNTED = (
    *("dies", "wakes", "LeaseLost", "completed", "RunHeld", "RunFailed", "settled"),
    *("StaleView", "fork of", "signals to", "waits for a signal"),
    *("is deployed", "tries it again", "stays diverged"),
)
"""What is counted in the moves."""


class Faults(msgspec.Struct, frozen=True):
    """How often what goes wrong: weights against an ordinary move of 100."""

    dies: float = 2.0
    stalls: float = 3.0
    wakes: float = 4.0
    leases_run_out: float = 2.0
    clock_goes_back: float = 0.5
    days_pass: float = 0.0
    people_stop_runs: float = 0.0
    """Somebody pauses or cancels a run, whoever has it."""
    code_is_edited: float = 0.1
    """Chance per worker, not a weight: it has another version of the flows."""
    big_values: float = 0.0
    """Chance per value, not a weight: it is stored apart."""
    clock_goes_ahead: float = 0.5
    signals: float = 0.0
    """Runs wait for signals, and somebody sends some: too many, too early, twice."""
    stale_views: float = 0.0
    """Somebody acts on what he saw of a run some time ago, while others go on."""
    deploys: float = 0.0
    """Other code of the same version is deployed, and the first one is put back."""

    @classmethod
    def swarm(cls, rng: random.Random) -> Faults:
        """Return another mix for each seed: some faults only show when others are rare."""

        def some(weight: float) -> float:
            return weight * rng.choice((0.0, 0.5, 1.0, 3.0))

        return cls(
            some(2.0), some(3.0), some(4.0), some(2.0), some(0.5), 0.0, rng.choice((0.0, 0.0, 0.2))
        )


class Outcome(msgspec.Struct):
    """What came of one seed."""

    seed: int
    moves: int = 0
    trace: str = ""
    """A digest of every move: the same seed gives the same trace."""
    counts: dict[str, int] = {}
    """How often what happened, so that it can be seen that something did."""
    violation: Violation | None = None
    log: list[str] = []

    def __str__(self) -> str:
        if self.violation is None:
            return f"seed {self.seed}: {self.moves} moves, no violation"
        return f"seed {self.seed}, move {self.moves}: {self.violation}"


def simulate(seed: int, *, url: str = "memory:", faults: Faults | None = None) -> Outcome:
    """Play one seed; a broken promise is in `outcome.violation`."""
    with contextlib.ExitStack() as stack:
        place = _Place(new_sqlite_url(stack) if url == "sqlite:" else url)
        simulation = Simulation(seed, place, faults)
        stack.callback(simulation.close)
        try:
            simulation.play()
        except Violation as violation:
            simulation.outcome.violation = violation
        except Exception as error:
            # Nothing in a simulation may surprise the library: its answer is an error of its own.
            text = f"{type(error).__name__}: {error}"
            simulation.outcome.violation = Violation("unexpected", text)
            simulation.outcome.violation.__cause__ = error
        return simulation.finished()


class _Place:
    """The clock, and where handles come from."""

    def __init__(self, url: str) -> None:
        self.machine = FakeMachine(START_US)
        self._url = url
        self._world = MemoryWorld(self.machine) if url == "memory:" else None

    def open(self) -> Store:
        if self._world is not None:
            return MemoryStore(self._world, lease_s=LEASE_S)
        return open_store(self._url, clock=self.machine, lease_s=LEASE_S)


class Simulation:
    """One seed."""

    def __init__(self, seed: int, place: _Place, faults: Faults | None = None) -> None:
        self._rng = random.Random(seed)
        self._place = place
        self._faults = faults or Faults.swarm(self._rng)
        self._kept = place.open()
        self.laws = Laws(self._kept)
        self.outside = Outside(self._rng, self._faults.big_values)
        self._operator = Opened(self._kept, Engine(self._kept))
        self._people = People(self._operator, self.laws, self._rng, self._meanwhile)
        self._programs = {f"run-{n}": generate(self._rng) for n in range(self._rng.randint(1, 3))}
        if self._faults.signals:
            for ops in self._programs.values():
                with_waits(self._rng, ops)
        self._edited: dict[str, dict[str, list[Op]]] = {}
        self._other: dict[str, list[Op]] = {}
        """The other code that is deployed now and then, of the same version."""
        if self._faults.deploys:
            self._other = {run: edited(self._rng, ops) for run, ops in self._programs.items()}
        self._deployed = FIRST_CODE
        self._born = 0
        self._heals = False
        """Whether everything is got to an end: a message has to be heard by who looks for work."""
        self._tries: dict[str, int] = {}
        """How often somebody ran a run in the healing at the end."""
        self.workers = [self._worker() for _ in range(self._rng.randint(2, 4))]
        self.outcome = Outcome(seed)
        self._trace = hashlib.blake2b(digest_size=16)

    def play(self) -> None:
        """Move until nothing is left to do, then heal everything and look at the end."""
        while self.outcome.moves < MOVES_MAX and not self._at_rest():
            self._move()
        self._heal()
        rows = self._rows()
        self.laws.check_all(rows)
        self.laws.check_world(rows, self.outside)
        waiting = [worker.life.run_id for worker in self.workers if worker.life is not None]
        self.laws.check_progress([row for row in rows if row.run_id not in waiting])
        if self._faults.deploys:
            self.laws.check_put_back(rows, FIRST_CODE)
        for row in rows:
            self._note(f"{row.run_id} is {row.status} {row.held_reason} {row.last_seq}")

    def finished(self) -> Outcome:
        """Return what came of it."""
        self.outcome.trace = self._trace.hexdigest()
        self.outcome.counts["zombie calls"] = self.laws.zombie_calls
        return self.outcome

    def close(self) -> None:
        """Let go of all handles."""
        for worker in self.workers:
            worker.die()
        self._operator._engine.closed = True
        self._kept.close()

    # -- moves ---------------------------------------------------------------------------------

    def _move(self) -> None:
        awake = [worker for worker in self.workers if not worker.stalled]
        faults = self._faults
        moves: list[tuple[float, Callable[[], str]]] = [
            (100.0 if awake else 0.0, lambda: self._work(self._rng.choice(awake))),
            (6.0, self._pass_time),
            (3.0, self._beat),
            (4.0, self._operate),
            (2.0, self._land),
            (faults.dies, self._die),
            (faults.stalls, self._stall),
            (faults.wakes, self._wake),
            (faults.leases_run_out, lambda: self._wait(LEASE_S + 5)),
            (faults.clock_goes_back, lambda: self._jump(-100.0)),
            (faults.days_pass, lambda: self._wait(2 * 86_400.0)),
            (faults.people_stop_runs, self._stop),
            (4 * faults.people_stop_runs, self._hear),
            (faults.clock_goes_ahead, lambda: self._jump(100.0)),
            (faults.signals, self._flood),
            (4 * faults.signals, self._hear),
            (faults.stale_views, self._see),
            (2 * faults.stale_views, self._act),
            (faults.deploys, self._deploy),
            (4 * faults.deploys, self._try_again),
        ]
        weights = [weight for weight, _ in moves]
        move = self._rng.choices([move for _, move in moves], weights)[0]
        self._note(move())
        self._look()

    def _look(self) -> None:
        self.outcome.moves += 1
        rows = self._rows()
        self.laws.check(rows)
        if self.outcome.moves % CHECK_EVERY == 0:
            self.laws.check_all(rows)

    def _work(self, worker: Worker) -> str:
        if worker.life is not None:
            run_id = worker.life.run_id
            left_us = worker.life.until_us - self.laws.now_us()
            if left_us > 0 and self._rng.random() < 0.3:
                self._place.machine.passes(left_us)
            return f"{worker.name} {run_id}: {worker.go_on()}"
        if self._rng.random() < 0.5:
            free = [row.run_id for row in worker.kept.claimable(worker.engine.now_us(), 10)]
            if free:
                run_id = self._rng.choice(free)
                did = worker.take_up(run_id, self._program(worker, run_id), self._rng)
                return f"{worker.name} {run_id}: {did}"
        run_id = self._rng.choice(list(self._programs))
        if self._heals and (self._is_waiting(run_id) or self._is_left_to_workers(run_id)):
            return f"{run_id} waits, and nobody calls it"
        request = _request(run_id, self._people.first(run_id), worker.code)
        did = worker.admit(request, self._program(worker, run_id), self._rng)
        self._tries[run_id] = self._tries.get(run_id, 0) + (did != "ended before")
        return f"{worker.name} runs {run_id}: {did}"

    def _is_waiting(self, run_id: str) -> bool:
        row = self._kept.get(run_id)
        return row is not None and row.status is Status.WAITING

    def _is_left_to_workers(self, run_id: str) -> bool:
        """Whether a run is held by code that does not fit, and workers are to get it on."""
        row = self._kept.get(run_id)
        return bool(self._faults.deploys) and row is not None and row.held_reason == "diverged"

    def _pass_time(self) -> str:
        return self._wait(self._rng.random() * 3)

    def _wait(self, seconds: float) -> str:
        before_us = self.laws.now_us()
        passed_us = int(seconds * SECOND_US)
        self._place.machine.passes(passed_us)
        self.laws.check_clock(before_us, passed_us)
        return f"{seconds:.3g} s pass"

    def _jump(self, seconds: float) -> str:
        """Somebody sets the time of the machine."""
        before_us = self.laws.now_us()
        self._place.machine.time_us += int(seconds * SECOND_US)
        self.laws.check_clock(before_us, 0)
        return f"the clock jumps by {seconds:g} s"

    def _beat(self) -> str:
        worker = self._rng.choice(self.workers)
        if worker.stalled:
            return "nobody beats"
        worker.beat()
        return f"{worker.name} beats"

    def _hear(self) -> str:
        worker = self._rng.choice(self.workers)
        if worker.stalled:
            return "nobody hears"
        worker.hear()
        return f"{worker.name} looks at the inboxes"

    def _die(self) -> str:
        worker = self._rng.choice(self.workers)
        return self._replace(worker)

    def _replace(self, worker: Worker) -> str:
        worker.die()
        self.workers.remove(worker)
        self.workers.append(self._worker())
        return f"{worker.name} dies, {self.workers[-1].name} comes"

    def _stall(self) -> str:
        worker = self._rng.choice(self.workers)
        worker.stalled = True
        return f"{worker.name} stalls"

    def _wake(self) -> str:
        stalled = [worker for worker in self.workers if worker.stalled]
        if not stalled:
            return "nobody wakes"
        worker = self._rng.choice(stalled)
        worker.stalled = False
        return f"{worker.name} wakes"

    def _deploy(self) -> str:
        """Deploy the other code, or put the first one back; one process after another has it."""
        self._deployed = OTHER_CODE if self._deployed == FIRST_CODE else FIRST_CODE
        return f"{self._deployed} is deployed: {self._replace(self._rng.choice(self.workers))}"

    def _try_again(self) -> str:
        """Somebody looks for runs that other code could not replay."""
        idle = [it for it in self.workers if it.life is None and not it.stalled]
        if not idle:
            return "nobody looks at what is held"
        worker = self._rng.choice(idle)
        taken = worker.try_again(lambda run_id: self._program(worker, run_id), self._rng)
        return f"{worker.name} {taken}"

    def _land(self) -> str:
        """Let a request of an abandoned thread arrive."""
        late = [request for request in self.outside.flying if request.abandoned]
        if not late:
            return "nothing arrives"
        request = self._rng.choice(late)
        landed = self.outside.land(request, self.laws.now_us())
        return f"a late request of {request.run_id} {'arrives' if landed else 'is refused'}"

    # -- people --------------------------------------------------------------------------------

    def _operate(self) -> str:
        """Somebody looks at a held or failed run and decides."""
        rows = [row for row in self._rows() if row.status in (Status.HELD, Status.FAILED)]
        if not rows:
            return "nobody has anything to decide"
        row = self._rng.choice(rows)
        try:
            return f"{row.run_id}: {self._decide(row)}"
        except HoldfastError as error:
            return f"{row.run_id}: {type(error).__name__}"

    def _stop(self) -> str:
        """Somebody pauses or cancels a run that goes on."""
        rows = [row for row in self._rows() if row.status in CLAIMABLE]
        if not rows:
            return "nobody stops anything"
        row = self._rng.choice(rows)
        stop = self._rng.choice((self._operator.pause, self._operator.cancel))
        try:
            return f"{row.run_id}: {stop(row.run_id, actor='operator', wait_s=0).outcome}"
        except HoldfastError as error:
            return f"{row.run_id}: {type(error).__name__}"

    def _flood(self) -> str:
        """Somebody sends several signals to a run, some of them again."""
        return self._people.flood(self._rng.choice(list(self._programs)))

    def _see(self) -> str:
        rows = self._rows()
        return self._people.see(self._rng.choice(rows)) if rows else "nobody looks"

    def _act(self) -> str:
        """Somebody acts on what he saw."""
        did, fork, origin = self._people.act()
        if fork is not None:
            for programs in (self._programs, *self._edited.values()):
                programs[fork] = programs[origin]
        return did

    def _meanwhile(self) -> None:
        """Others do something just before somebody's decision is written."""
        awake = [worker for worker in self.workers if not worker.stalled]
        moves = [self._operate, self._stop]
        if awake:
            moves += [lambda: self._work(self._rng.choice(awake))] * 2
        self._note(f"meanwhile: {self._rng.choice(moves)()}")

    def _decide(self, row: RunRow) -> str:
        if row.status is Status.HELD and row.held_reason == "in_doubt":
            return self._settle(row)
        if row.held_reason == "diverged":
            return "stays diverged"
        history = History.fold(row.run_id, self._kept.load(row))
        if row.status is Status.FAILED and not self._may_repeat(row, history):
            return "stays failed"
        self._operator.resume(row.run_id, actor="operator", confirm=True)
        return "resumed"

    def _may_repeat(self, row: RunRow, history: History) -> bool:
        """A person confirms only what has surely not happened and cannot happen any more."""
        return all(
            self._truth(row, record) is NOT_DONE
            for record in superseded_by_resume(history)
            if record.intent is not None and record.effect
        )

    def _settle(self, row: RunRow) -> str:
        history = History.fold(row.run_id, self._kept.load(row))
        doubts = [record for record in history.open_doubts() if record.intent is not None]
        if not doubts:
            return "waits for another run"
        record = self._rng.choice(doubts)
        decision = self._truth(row, record)
        if decision is None:
            return f"{record.key} may still happen"
        if decision is NOT_DONE and self._rng.random() < 0.1:
            decision = Failed("given up")
        self._operator.settle(row.run_id, record.key, decision, actor="operator")
        return f"{record.key} is settled as {decision!r}"

    def _truth(self, row: RunRow, record: Record) -> Any:
        """A person who looks closely: Done, NOT_DONE, or None while it may still happen."""
        assert record.intent is not None
        facts = msgspec.json.decode(record.intent.body)
        truth = self.outside.truth(name_of(record.key), facts["key"])
        if truth is not NOT_DONE:
            return truth
        if any(request.key == facts["key"] for request in self.outside.flying):
            return None
        for worker in self.workers:
            life = worker.life
            if life is not None and life.run_id == row.run_id:
                return None
        return truth

    # -- the end -------------------------------------------------------------------------------

    def _heal(self) -> None:
        """All old workers die; healthy ones get everything to an end."""
        for worker in list(self.workers):
            worker.die()
            self.workers.remove(worker)
        # As many as there are runs: one that waits for another run's key stands in nobody's way.
        self.workers += [self._worker(edits=False) for _ in self._programs]
        self._tries = dict.fromkeys(self._programs, 0)
        self._heals = True
        moves = 0
        while moves < max(HEALING_MAX, HEALING_MAX_PER_RUN * len(self._rows())):
            moves += 1
            if self._at_rest():
                return
            if self._faults.signals and self._rng.random() < 0.2:
                self._note(self._hear())
                self._note(self._people.send_what_is_waited_for(self._rows()))
            if self._faults.deploys and self._rng.random() < 0.2:
                self._note(self._try_again())
            if self._rng.random() < 0.1:
                self._wait(2.0)
            operates = self._rng.random() < 0.2
            worker = self._rng.choice(self.workers)
            self._note(self._operate() if operates else self._work(worker))
            self._look()

    def _at_rest(self) -> bool:
        rows = self._rows()
        lives = [worker.life for worker in self.workers if worker.life is not None]
        if len(rows) < len(self._programs) or not all(life.waits for life in lives):
            return False
        # One that waits for the key of a run which is held for good waits for a person, too.
        waiting = [life.run_id for life in lives]
        return all(row.run_id in waiting or self._is_done(row) for row in rows)

    def _is_done(self, row: RunRow) -> bool:
        """Whether nothing more is to be expected of a run: it ended, or is held for good."""
        if self._is_left_to_workers(row.run_id) and not has_been_tried(row, FIRST_CODE):
            return self._tries.get(row.run_id, 0) > TRIES_MAX
        if row.status in (Status.HELD, Status.FAILED):
            return row.held_reason == "diverged" or self._tries.get(row.run_id, 0) > TRIES_MAX
        return row.status in (Status.COMPLETED, Status.CANCELLED)

    # -- pieces --------------------------------------------------------------------------------

    def _rows(self) -> list[RunRow]:
        return list(reversed(self._kept.list(Query())))

    def _worker(self, *, edits: bool = True) -> Worker:
        self._born += 1
        worker = Worker(f"w{self._born}", self._place.open(), self.laws, self.outside)
        if self._faults.deploys:
            worker.code = self._deployed if edits else FIRST_CODE
            self.laws.codes[worker.owner] = worker.code
            if worker.code == OTHER_CODE:
                self._edited[worker.name] = self._other
        elif edits and self._rng.random() < self._faults.code_is_edited:
            self._edited[worker.name] = {
                run_id: edited(self._rng, ops) for run_id, ops in self._programs.items()
            }
        return worker

    def _program(self, worker: Worker, run_id: str) -> Sequence[Op]:
        return self._edited.get(worker.name, self._programs)[run_id]

    def _note(self, move: str) -> None:
        self.outcome.log.append(move)
        self._trace.update(move.encode() + b"\n")
        for word in COUNTED:
            if word in move:
                self.outcome.counts[word] = self.outcome.counts.get(word, 0) + 1


def _request(run_id: str, first: str, code: str) -> admission.RunRequest:
    """A fork has the input of the run that it came from."""
    return admission.RunRequest(
        run_id=run_id,
        flow="simulated",
        names=("simulated",),
        version="1",
        input={"run": first},
        defaults={},
        fingerprint=str,
        code=lambda: code,
        awaits=False,
    )
