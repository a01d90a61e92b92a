"""Kill a mixed agent again and again, let it finish, and compare the world with the journal.

The world is the ledger of executions and the books of the payment server. The journal must agree:
one outcome per step, and it is that of the last execution; no execution after an outcome was
recorded; one charge per effect, and no request without an intent.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import holdfast
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.rows import Write
from tests.contract.store_contract import new_run
from tests.crash.harness import Ended, World
from tests.crash.payments import Client

SCRIPT = "mixed.py"
BATCH = 6
"""Runs that one process works on, some of them at once."""
UP_AND_RUNNING_S = 0.35
"""Kills fall within this time after the process is up; a batch takes about twice as long."""
CROWD = 3
"""Processes that work on the same runs at once."""
STARTING_S = 0.3
SHARE_WHILE_STARTING = 0.2

CHECKS_PAUSE = 9

TURNS = 4
STEPS = [
    "first",
    *(f"turn-{i}" for i in range(TURNS)),
    *(f"{side}-{i}" for side in ("left", "right") for i in range(3)),
    *(f"item-{i}" for i in range(4)),
]
EFFECTS = ["charge", *(f"tool-{i}" for i in range(TURNS)), "last"]
RESULT = {"notes": len(STEPS) + TURNS, "paid": 12}

TURN_POINTS = [
    f"{where} {label}-{i}"
    for i in range(TURNS)
    for where, label in [
        ("before", "turn"), ("in", "turn"),
        ("before", "tool"), ("in", "tool"), ("after", "tool"),
    ]
]  # fmt: skip
POINTS = [
    *(f"{where} first" for where in ("before", "in")),
    "between",
    *(f"{where} charge" for where in ("before", "in", "after")),
    *TURN_POINTS,
    *(f"end of turn {i}" for i in range(TURNS)),
    "after turns",
    *(
        f"{where} {s}-{i}"
        for i in range(3)
        for s in ("left", "right")
        for where in ("before", "in")
    ),
    "after gather",
    *(f"{where} item-{i}" for i in range(4) for where in ("before", "in")),
    *(f"{where} last" for where in ("before", "in", "after")),
    "at the end",
]
"""Every place at which the agent can be told to die."""


@dataclass
class Summary:
    """What a series of kills came to."""

    kills: int
    runs: int
    executions: int
    repeated: int
    requests: int
    violations: list[str]

    def __str__(self) -> str:
        return (
            f"{self.kills} kills, {self.runs} runs, {self.executions} executions "
            f"({self.repeated} repeated), {self.requests} requests: "
            f"{len(self.violations)} violations"
        )


@dataclass
class Checks:
    """What was found beside the runs, and how often somebody looked."""

    done: int = 0
    found: list[str] = field(default_factory=list)


@contextmanager
def checked(world: World, pause: int = CHECKS_PAUSE) -> Iterator[Checks]:
    """Meanwhile, verify the store again and again, and let `gc` remove runs from it: a healthy
    store is never called damaged, whatever works on it and dies. A check is followed by a pause of
    so many times its length."""
    checks = Checks()
    enough = threading.Event()

    def check() -> None:
        with world.store() as store:
            owner = store._backend.register_owner()
            while not enough.is_set():
                began_s = time.monotonic()
                lease = store._backend.start(new_run(f"waste-{checks.done}", "waste"), owner).lease
                assert lease is not None
                store._backend.append([Write(lease, [Draft(Kind.RUN_COMPLETED, 3, body=b"{}")])])
                store.prune(older_than=0, flow="waste")
                checks.found += [f"beside the runs, verify: {wrong}" for wrong in store.verify()]
                checks.done += 1
                enough.wait(pause * (time.monotonic() - began_s))

    with ThreadPoolExecutor(1) as pool:
        checking = pool.submit(check)
        try:
            yield checks
        finally:
            enough.set()
            checking.result()


def kill_at_random(world: World, payments: Client, *, kills: int, seed: int) -> Summary:
    """Kill the agent this often at random times, then let it finish, then compare."""
    with checked(world) as checks:
        done, runs, broken = _kill_at_random(world, kills, seed)
    return summary(world, payments, kills=done, runs=runs, before=broken + checks.found)


def _kill_at_random(world: World, kills: int, seed: int) -> tuple[int, int, list[str]]:
    rng = random.Random(seed)
    first, done = 0, 0
    broken: list[str] = []
    while done < kills and not broken:
        (world.marks / "up").unlink(missing_ok=True)
        script = world.start(SCRIPT, first, first + BATCH - 1)
        if rng.random() < SHARE_WHILE_STARTING:
            time.sleep(rng.uniform(0, STARTING_S))
        else:
            script.until("up")
            time.sleep(rng.uniform(0, UP_AND_RUNNING_S))
        if script.process.poll() is None:
            ended = script.kill()
            done += ended.killed
        else:
            ended = script.end()
        if not ended.killed:
            broken += _wrong_results(ended, first)
            first += BATCH
    if not broken:
        broken += _wrong_results(world.run(SCRIPT, first, first + BATCH - 1), first)
    return done, first + BATCH, broken


def kill_several(world: World, payments: Client, *, kills: int, seed: int) -> Summary:
    """The same with several processes that want the same runs: one dies, another takes over."""
    with checked(world) as checks:
        done, runs, broken = _kill_several(world, kills, seed)
    return summary(world, payments, kills=done, runs=runs, before=broken + checks.found)


def _kill_several(world: World, kills: int, seed: int) -> tuple[int, int, list[str]]:
    rng = random.Random(seed)
    first, done = 0, 0
    broken: list[str] = []
    while done < kills and not broken:
        batch = (first, first + BATCH - 1)
        crowd = [world.start(SCRIPT, *batch) for _ in range(CROWD)]
        while done < kills and all(script.process.poll() is None for script in crowd):
            time.sleep(rng.uniform(0, CROWD * UP_AND_RUNNING_S))
            victim = rng.randrange(CROWD)
            if crowd[victim].process.poll() is None:
                done += crowd[victim].kill().killed
                crowd[victim] = world.start(SCRIPT, *batch)
        for script in crowd:
            broken += _wrong_results(script.end(), first)
        first += BATCH
    return done, first, broken


def _wrong_results(ended: Ended, first: int) -> list[str]:
    if ended.said.get("result") == [RESULT] * BATCH:
        return []
    return [f"runs from m{first} ended as {ended.said}, exit code {ended.code}\n{ended.stderr}"]


def summary(world: World, payments: Client, *, kills: int, runs: int, before: list[str]) -> Summary:
    """Compare every run with the ledger and the books."""
    executions = world.executions()
    violations = list(before)
    with world.store() as store:
        if not violations:
            charged = set()
            for number in range(runs):
                run = f"m{number}"
                violations += compare(store, run, world)
                charged |= recorded_charges(store.history(run))
            violations += compare_books(payments.state(), charged, effects=runs * len(EFFECTS))
        violations += [f"verify: {finding}" for finding in store.verify()]
    different = len({(e.run, e.step) for e in executions})
    return Summary(
        kills=kills,
        runs=runs,
        executions=len(executions),
        repeated=len(executions) - different,
        requests=payments.seen()[0],
        violations=violations,
    )


def compare(store: holdfast.types.Store, run: str, world: World) -> list[str]:
    """Return what the journal of one run says that the ledger denies."""
    wrong: list[str] = []
    entries = store.history(run)
    if [e.seq for e in entries] != list(range(1, len(entries) + 1)):
        wrong.append("its sequence has a gap")
    if store.get(run).status != "completed":
        wrong.append(f"it is {store.get(run).status}")
    outcomes = {}
    intents: Counter[str] = Counter()
    labels: dict[str | None, str] = {}
    for entry in entries:
        if entry.kind == "step_started":
            labels[entry.step] = entry.body["args"]["label"]
            intents[labels[entry.step]] += 1
        if entry.kind == "step_completed":
            label = labels[entry.step]
            if label in outcomes:
                wrong.append(f"{label} has two outcomes")
            outcomes[label] = entry
    executed: dict[str, list[Any]] = {}
    for execution in world.executions():
        if execution.run == run:
            executed.setdefault(execution.step, []).append(execution)
    if set(outcomes) != {*STEPS, *EFFECTS}:
        wrong.append(f"without an outcome: {({*STEPS, *EFFECTS}) - set(outcomes)}")
    if set(executed) != set(outcomes):
        wrong.append(f"executed, but not recorded: {set(executed) - set(outcomes)}")
    for label, outcome in outcomes.items():
        wrong += _compare_step(label, outcome, executed.get(label, []), intents[label])
    return [f"{run}: {what}" for what in wrong]


CLOCKS_APART_S = 0.25
"""The ledger has the machine's time, a journal on a server that of the server."""


def _compare_step(label: str, outcome: Any, executed: list[Any], intents: int) -> list[str]:
    if not executed:
        return [f"{label} has an outcome and was never executed"]
    wrong = []
    late = [e for e in executed if e.at > outcome.at.timestamp() + CLOCKS_APART_S]
    if late:
        wrong.append(f"{label} was executed after its outcome was recorded: {late}")
    if label in EFFECTS and len(executed) > intents:
        wrong.append(f"{label} was executed {len(executed)} times on {intents} intents")
    if label in STEPS and outcome.body["result"] != executed[-1].note:
        wrong.append(f"{label} has the outcome of another execution than the last")
    return wrong


def recorded_charges(entries: list[Any]) -> set[str]:
    """Return the charges that a journal holds as results of effects."""
    results = [e.body["result"] for e in entries if e.kind == "step_completed"]
    return {result["charge"] for result in results if isinstance(result, dict)}


def compare_books(state: dict[str, Any], charged: set[str], *, effects: int) -> list[str]:
    """Return what the payment server saw that the journals deny."""
    wrong = [f"key {key}: {at['charges']}" for key, at in state.items() if len(at["charges"]) != 1]
    made = {charge["charge"] for at in state.values() for charge in at["charges"]}
    if len(state) != effects:
        wrong.append(f"{effects} effects used {len(state)} keys")
    if made != charged:
        wrong.append(f"charged and recorded differ: {made ^ charged}")
    return wrong
