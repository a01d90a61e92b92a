"""Scenes: what people, clocks and deploys do to runs at work, with processes that are killed.

    control   pauses, resumes and cancels of a run with a long journal             I10
    signals   a flood of signals, some sent twice, beside `verify` and `gc`        I13, I16
    clocks    commits of a process whose clock is ahead; then sleeps and leases    I9
    forks     forks of a run as it was seen, which has changed since or has not    I22
    loops     code whose two loops have changed places, and is put back            I15

The scenes take turns, by turns on a file and on a server, so that ten rounds play each on both. What
happens inside a round is drawn by its seed; a violation says how its round is played again.
"""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import holdfast
from holdfast._engine.decisions.control import asked
from holdfast._engine.journal.rows import etag_of
from tests.crash.harness import Ended, Script, World, assert_sound, wait_for
from tests.crash.kills import checked
from tests.crash.scripts.long_runs import long_run
from tests.postgres.server import Server
from tests.torture import actors

ACTORS = Path(actors.__file__)
STORES = ("sqlite", "postgresql")
CLAIMS_MAX = 2
PATIENCE_S = 30.0
"""How long what takes a second or two may take on a busy machine."""
LEASE_S = 1.5
HOUR_S = 3600


@dataclass
class Stage:
    """One round of a scene: its world, its chance, and what came of it."""

    world: World
    rng: random.Random
    did: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def start(self, *what: object, **env: object) -> Script:
        return self.world.start(ACTORS, *what, **env)

    def kill(self, script: Script) -> None:
        """Kill a process that may have ended by itself."""
        self.did["kills"] += script.kill().killed

    def expect(self, holds: object, otherwise: str) -> None:
        if not holds:
            self.violations.append(otherwise)

    def wait(self, condition: Callable[[], Any], what: str) -> None:
        """Wait for a fact; raises AssertionError if it does not come in a time that is ample."""
        wait_for(condition, what, PATIENCE_S)

    def ended(self, script: Script, what: str) -> Ended:
        """Wait until a process has ended by itself."""
        self.wait(lambda: script.process.poll() is not None, what)
        return script.end()

    def sometime(self, most_s: float) -> None:
        """Let a random time pass: what comes next strikes anywhere."""
        time.sleep(self.rng.uniform(0, most_s))

    def sound(self, store: holdfast.types.Store, *run_ids: str) -> None:
        for run_id in run_ids:
            assert_sound(store, run_id)


Scene = Callable[[Stage], None]


# -- control messages to long runs ---------------------------------------------------------------


def control(stage: Stage) -> None:
    """Whatever is said to a run, and whoever is killed: two claims later it has taken effect."""
    steps = stage.rng.randrange(2_000, 3_500)
    orders = [*["pause"] * stage.rng.randint(1, 2), stage.rng.choice(["pause", "cancel"])]
    with stage.world.store() as store:
        long_run.with_options(store=store).submit("r", steps)
        store.signal("r", "go")
        workers = [stage.start("work") for _ in range(2)]
        stage.wait(lambda: _row(store).steps >= steps, "a long journal")
        for number, order in enumerate(orders):
            stage.sometime(0.5)
            told = _give(stage, store, order, number)
            if stage.rng.random() < 0.5:
                stage.sometime(0.2)
                stage.kill(workers.pop(stage.rng.randrange(len(workers))))
                workers.append(stage.start("work"))
            if not _obeyed(stage, store, order, told):
                return
            if _row(store).status == "held":
                _resumed(stage, store)
        stage.sound(store, "r")


def _row(store: holdfast.types.Store, run_id: str = "r") -> Any:
    return store._backend.get(run_id)


def _give(stage: Stage, store: holdfast.types.Store, order: str, number: int) -> int:
    """Say it as a message, which whoever has the run or claims it next has to hear. Returns the epoch
    of the run: each claim raises it by one."""
    message = asked(order, f"{order} {number}", "ana", "", store._backend.now_us())
    store._backend.post("r", message)
    stage.did[f"{order}s"] += 1
    return int(_row(store).epoch)


def _obeyed(stage: Stage, store: holdfast.types.Store, order: str, told: int) -> bool:
    """See that it takes effect in time. One claim may be that of a process that is killed."""
    wanted = {"pause": ("held", "paused"), "cancel": ("cancelled", None)}[order]

    def is_over() -> bool:
        row = _row(store)
        done = row.status in ("held", "cancelled")
        return done or row.epoch - told > CLAIMS_MAX

    stage.wait(is_over, f"a run that obeys: {order}")
    row = _row(store)
    claims = row.epoch - told
    stage.did["claims"] += claims
    if claims > CLAIMS_MAX:
        stage.violations.append(f"{order}: claimed {claims} times, and not done")
        return False
    became = (row.status, row.held_reason)
    stage.expect(became == wanted, f"{order}: it is {became}")
    return True


def _resumed(stage: Stage, store: holdfast.types.Store) -> None:
    told = _row(store).epoch
    store.resume("r", actor="ana")
    stage.did["resumes"] += 1
    stage.wait(lambda: _row(store).epoch > told, "somebody who takes it up")


# -- floods of signals beside checks -------------------------------------------------------------


FLOODED = ("r0", "r1", "r2")


def signals(stage: Stage) -> None:
    """Each signal is received once, and nobody calls the store damaged meanwhile."""
    counts = {run_id: stage.rng.randrange(25, 50) for run_id in FLOODED}
    with stage.world.store() as store, checked(stage.world, pause=1) as checks:
        for run_id, count in counts.items():
            actors.flooded.with_options(store=store).submit(run_id, count)
        workers = [stage.start("work") for _ in range(2)]
        senders = [stage.start("send", run_id, counts[run_id]) for run_id in FLOODED]
        victim = stage.rng.randrange(len(FLOODED))
        _some_sent(stage, store, FLOODED[victim])
        stage.kill(senders[victim])
        # Nobody knows how far it came, so all is sent again, and some of it twice.
        senders[victim] = stage.start("send", FLOODED[victim], counts[FLOODED[victim]])
        for _ in range(stage.rng.randint(1, 2)):
            _some_received(stage, store, counts)
            stage.kill(workers.pop(stage.rng.randrange(len(workers))))
            workers.append(stage.start("work"))
        for run_id, count in counts.items():
            stage.wait(lambda: _row(store, run_id).status == "completed", "a run that has all")
            _received_once(stage, store, run_id, count)
        for sender in senders:
            ended = sender.end()
            stage.expect("result" in ended.said, f"a sender failed: {ended}")
        stage.sound(store, *FLOODED)
    stage.did["signals"] += sum(counts.values())
    stage.did["checks"] += checks.done
    stage.violations += checks.found


def _some_sent(stage: Stage, store: holdfast.types.Store, run_id: str) -> None:
    def is_some() -> bool:
        row = _row(store, run_id)
        return row.last_seq > 1 or bool(store._backend.inbox(row.run_no))

    stage.wait(is_some, "the first signal")


def _some_received(stage: Stage, store: holdfast.types.Store, counts: dict[str, int]) -> None:
    run_id = stage.rng.choice(FLOODED)
    entries = stage.rng.randrange(counts[run_id])
    stage.wait(lambda: _row(store, run_id).last_seq > entries, "some of the signals")


def _received_once(stage: Stage, store: holdfast.types.Store, run_id: str, count: int) -> None:
    received = [entry for entry in store.history(run_id) if entry.kind == "signal_received"]
    stage.expect(len(received) == count, f"{len(received)} of {count} signals were received")
    result = store.get(run_id).result
    stage.expect(sorted(result) == list(range(count)), f"{count} signals came as {result}")
    left = store._backend.inbox(_row(store, run_id).run_no)
    stage.expect(not left, f"left in the inbox: {left}")


# -- clocks that jump ----------------------------------------------------------------------------


def clocks(stage: Stage) -> None:
    """One process has commits from the future. Afterwards sleeps and leases end in their time."""
    ahead_s = stage.rng.randrange(HOUR_S, 48 * HOUR_S)
    nap_s = stage.rng.uniform(0.3, 1.0)
    while_leased = stage.rng.random() < 0.5
    if not while_leased:
        _commit_ahead(stage, ahead_s)
    owner = stage.start("hold", "r", lease_s=LEASE_S).until("r in its step")
    owner.signal(signal.SIGSTOP)
    if while_leased:
        _commit_ahead(stage, ahead_s)
    # A process that is stopped keeps its lock: only the end of its lease lets another one in.
    heir = stage.start("hold", "r", lease_s=LEASE_S)
    napping = stage.start("nap", "nap", nap_s)
    took_s = stage.ended(napping, "a sleep that ends").result
    stage.did["sleeps"] += 1
    taken = stage.ended(heir, "a lease that ends")
    stage.expect(taken.said.get("result") == "done", f"who took the run over: {taken}")
    stage.did["takeovers"] += 1
    early = took_s < 0.8 * nap_s
    stage.expect(not early, f"a sleep of {nap_s:.2f} s took {took_s:.2f} s")
    stage.world.mark("r goes on")
    owner.signal(signal.SIGCONT)
    ended = owner.end()
    stage.expect(ended.said.get("error") == "LeaseLost", f"the stopped process ended as {ended}")
    with stage.world.store() as store:
        clock_s = store._backend.now_us() / 1e6 - time.time()
        stage.expect(
            clock_s > ahead_s - PATIENCE_S, f"the clock went back by {ahead_s - clock_s} s"
        )
        stage.sound(store, "r", "nap")


def _commit_ahead(stage: Stage, ahead_s: int) -> None:
    process = stage.start("ahead", ahead_s)
    stage.kill(process.until(f"committed ahead by {ahead_s} s"))
    stage.did["jumps"] += 1


# -- forks of what was seen ----------------------------------------------------------------------


def forks(stage: Stage) -> None:
    """A fork of a run as it was seen is made once; one of a run that has changed, not at all."""
    with stage.world.store() as store:
        actors.forked.with_options(store=store).submit("r")
        store.recover()
        outdated = _seen(store)
        _changes(store)
        rounds = ["changes meanwhile", "stays"]
        stage.rng.shuffle(rounds)
        for number, meanwhile in enumerate(rounds):
            _fork(stage, store, number, outdated, changes=meanwhile == "changes meanwhile")
        stage.sound(store, "r")


def _seen(store: holdfast.types.Store) -> str:
    return etag_of(_row(store))


def _changes(store: holdfast.types.Store) -> None:
    """Something happens to the run: it is paused, or goes on."""
    if _row(store).status == "held":
        store.resume("r", actor="ben")
    else:
        store.pause("r", actor="ben")


def _fork(
    stage: Stage, store: holdfast.types.Store, number: int, outdated: str, *, changes: bool
) -> None:
    """Three processes fork a run, two of them to the same id; a fourth has an old view."""
    seen = _seen(store)
    same, other, late = (f"{name}-{number}" for name in ("same", "other", "late"))
    names = [(same, "a"), (same, "b"), (other, "c")]
    forkers = {
        f"{number}{name}": stage.start("fork", "r", new, seen, f"{number}{name}")
        for new, name in names
    }
    old = stage.start("fork", "r", late, outdated, f"{number}d")
    stage.expect(old.end().result == "stale", f"with an outdated view: {old.end()}")
    for name, forker in forkers.items():
        forker.until(f"{name} has read")
    killed = stage.rng.choice([None, *forkers])
    if killed is not None:
        stage.kill(forkers.pop(killed))
    if changes:
        _changes(store)
    for name in forkers:
        stage.world.mark(f"{name} goes on")
        stage.world.mark(f"{name} ends")
    answers = {name: str(forker.end().result) for name, forker in forkers.items()}
    _judge_forks(stage, store, answers, [same, other, late], changes=changes)


def _judge_forks(
    stage: Stage,
    store: holdfast.types.Store,
    answers: dict[str, str],
    ids: list[str],
    *,
    changes: bool,
) -> None:
    same, other, late = ids
    there = {run_id for run_id in ids if _row(store, run_id) is not None}
    told = Counter(answers.values())
    stage.did["forks"] += told["created"]
    stage.did["conflicts"] += told["stale"] + 1
    stage.expect(late not in there, f"a fork of an outdated view is there: {late}")
    if changes:
        stage.expect(not there, f"the run changed, and there are forks of it: {there}")
        stage.expect(set(answers.values()) == {"stale"}, f"the run changed: {answers}")
        return
    by_name = {name[-1]: answer for name, answer in answers.items()}
    pair = sorted(answer for name, answer in by_name.items() if name in "ab")
    wanted = {same} | ({other} if "c" in by_name else set())
    stage.expect(there == wanted, f"forks are {there}, not {wanted}; they answered {answers}")
    stage.expect(pair in (["created"], ["created", "there"]), f"of one fork: {answers}")
    stage.expect(by_name.get("c", "created") == "created", f"of another one: {answers}")
    stage.sound(store, *there)


# -- loops that moved ----------------------------------------------------------------------------

POINTS = [f"{loop} {turn}" for loop in ("refund", "invoice") for turn in range(1, actors.TURNS + 1)]
BOOKS = dict.fromkeys(("refunded", "invoiced"), 2**actors.TURNS)
EFFECTS = [f"{loop} {2**n}" for loop in ("refund", "invoice") for n in range(actors.TURNS)]


def loops(stage: Stage) -> None:
    """Other code holds the run, and does nothing; the code put back goes on where it was."""
    first, second = sorted(stage.rng.sample(range(len(POINTS)), 2))
    for point in (first, second):
        stage.did["kills"] += 1
        stage.world.crash(ACTORS, "loops", "r", "as before", at=POINTS[point])
        done = stage.world.counts()
        ended = stage.world.run(ACTORS, "loops", "r", "exchanged")
        stage.did["deploys"] += 1
        held = ended.said.get("error") == "RunHeld" and ended.said.get("reason") == "diverged"
        stage.expect(held, f"loops that changed places at {POINTS[point]}: {ended}")
        again = stage.world.counts() - done
        stage.expect(not again, f"loops that changed places did {again}")
    ended = stage.world.run(ACTORS, "loops", "r", "as before")
    stage.expect(ended.said.get("result") == BOOKS, f"the code was put back: {ended}")
    counts = stage.world.counts()
    stage.expect(counts == dict.fromkeys(EFFECTS, 1), f"effects were done {counts}")
    stage.did["effects"] += sum(counts.values())
    with stage.world.store() as store:
        stage.sound(store, "r")


# -- playing them --------------------------------------------------------------------------------

SCENES: dict[str, Scene] = {
    scene.__name__: scene for scene in (control, signals, clocks, forks, loops)
}


@dataclass
class Played:
    """What the rounds of one scene came to."""

    rounds: Counter[str] = field(default_factory=Counter)
    did: Counter[str] = field(default_factory=Counter)
    took_s: float = 0.0
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        rounds = ", ".join(f"{count} on {store}" for store, count in sorted(self.rounds.items()))
        did = ", ".join(f"{count} {what}" for what, count in sorted(self.did.items()))
        return f"{rounds}: {did}: {len(self.violations)} violations ({self.took_s:.0f} s)"


def play(
    folder: Path,
    rounds: int,
    seed: int,
    names: Sequence[str] = tuple(SCENES),
    stores: Sequence[str] = STORES,
) -> dict[str, Played]:
    """Play so many rounds, scene after scene; the files of rounds with violations are kept."""
    played = {name: Played() for name in names}
    server: Server | None = None
    with ExitStack() as stack:
        for number in range(rounds):
            name = names[number % len(names)]
            store = stores[number // len(names) % len(stores)]
            place = folder / f"{number}-{name}-{store}"
            place.mkdir(parents=True)
            database = None
            if store == "postgresql":
                server = server or stack.enter_context(Server())
                database = server.database(f"round_{number}")
            told = played[name]
            began_s = time.monotonic()
            stage = play_one(SCENES[name], place, seed + number, database)
            told.took_s += time.monotonic() - began_s
            told.rounds[store] += 1
            told.did.update(stage.did)
            again = f"--scene {name} --on {store} --seed {seed + number} --n 1"
            told.violations += [f"{again}: {it}" for it in stage.violations]
            if not stage.violations:
                shutil.rmtree(place)
    return played


def play_one(
    scene: Scene, place: Path, seed: int, database: str | None = None, plant: str = ""
) -> Stage:
    """Play one round of a scene. What it waits for in vain is a violation too."""
    with _world(place, database) as world:
        if plant:
            world.env["CRASH_PLANT"] = plant
        stage = Stage(world, random.Random(seed))
        try:
            scene(stage)
        except (AssertionError, holdfast.errors.HoldfastError) as error:
            stage.violations.append(f"{type(error).__name__}: {error}")
        return stage


@contextmanager
def _world(place: Path, database: str | None) -> Iterator[World]:
    world = World(place, elsewhere=database)
    try:
        yield world
    finally:
        world.close()
