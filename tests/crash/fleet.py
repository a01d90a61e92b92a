"""A fleet under fire: `holdfast worker` with several processes, one of them killed every second.

The oracle compares the journals with what happened outside: the ledger of executions, and the
payment server. Nothing that is recorded is executed again, and each effect happened once.
"""

from __future__ import annotations

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import holdfast
from tests.crash.harness import ROOT, SCRIPTS, World
from tests.crash.payments import Client

HOLDFAST = Path(sys.executable).parent / "holdfast"
LOOK_S = 0.02


@dataclass
class Sizes:
    """How large a fleet, how much work, how much fire."""

    processes: int = 4
    runs: int = 60
    steps: int = 20
    concurrency: int = 4
    every_s: float = 1.0
    pause_s: float = 0.03
    """How long each body takes at least."""
    patience_s: float = 100.0
    seed: int = 7


@dataclass
class Told:
    """What came out."""

    kills: int
    runs: int
    steps: int
    repeated: int
    """Executions of steps that were not recorded yet when their process was killed."""
    took_s: float
    takeovers_s: list[float] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        times = sorted(self.takeovers_s)
        taken = "no run was taken over"
        if times:
            p99 = times[min(len(times) - 1, int(len(times) * 0.99))]
            taken = (
                f"{len(times)} takeovers: median {statistics.median(times):.3f} s, "
                f"p99 {p99:.3f} s, longest {times[-1]:.3f} s"
            )
        return (
            f"{self.runs} runs x {self.steps} steps, {self.kills} kills in {self.took_s:.1f} s, "
            f"{self.repeated} bodies begun again, {len(self.violations)} violations; {taken}"
        )


class Fleet:
    """The processes of one `holdfast worker`."""

    def __init__(self, process: subprocess.Popen[bytes], size: int) -> None:
        self.process = process
        self.size = size

    def children(self) -> list[int]:
        """Return the ids of its living processes."""
        path = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def kill_one(
        self, store: holdfast.types.Store, chance: random.Random
    ) -> tuple[int, float] | None:
        """Kill one of the processes that work; returns which, and when. On a machine that is too
        busy to replace them in time, half of them are spared."""
        alive = set(self.children())
        found = sorted(seen.pid for seen in store.workers() if seen.pid in alive)
        if 2 * len(found) <= self.size:
            return None
        pid = chance.choice(found)
        at_s = time.time()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # It ended after the look at the children.
            return None
        return pid, at_s


@contextmanager
def working(
    world: World, sizes: Sizes, *options: str, script: Path = SCRIPTS / "fleet_flows.py"
) -> Iterator[Fleet]:
    """A `holdfast worker` that ends with the block, in good order."""
    environment = world._environment({"pause_s": sizes.pause_s})
    command = [
        *(str(HOLDFAST), "worker", str(script), "--url", world.url),
        *("--processes", str(sizes.processes), "--concurrency", str(sizes.concurrency), *options),
    ]
    with (world.root / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        )
    try:
        yield Fleet(process, sizes.processes)
    finally:
        process.terminate()
        try:
            code = process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
    assert code == 0, (world.root / "worker.log").read_text()[-4000:]


def under_fire(world: World, payments: Client, sizes: Sizes) -> Told:
    """Submit the runs, kill a process now and then until all have ended, and compare."""
    from tests.crash.scripts.fleet_flows import member

    chance = random.Random(sizes.seed)
    kills: dict[int, float] = {}
    began_s = time.monotonic()
    with world.store() as store:
        for run_id in (f"r{number}" for number in range(sizes.runs)):
            member.with_options(store=store).submit(run_id, run_id, sizes.steps)
        with working(world, sizes) as fleet:
            next_s = time.monotonic() + sizes.every_s
            while left := open_runs(store):
                assert time.monotonic() - began_s < sizes.patience_s, f"{left} runs are still open"
                if time.monotonic() >= next_s:
                    next_s = time.monotonic() + sizes.every_s
                    if (killed := fleet.kill_one(store, chance)) is not None:
                        kills[killed[0]] = killed[1]
                time.sleep(LOOK_S)
    return judge(world, payments, sizes, kills, time.monotonic() - began_s)


def judge(
    world: World, payments: Client, sizes: Sizes, kills: dict[int, float], took_s: float = 0.0
) -> Told:
    """Compare the journals with what happened outside."""
    told = Told(len(kills), sizes.runs, sizes.steps, 0, took_s)
    ledger = executions(world)
    with world.store() as store:
        for number in range(sizes.runs):
            run_id = f"r{number}"
            compare(store, run_id, sizes, ledger[run_id], told)
            takeovers(store, run_id, kills, told)
        compare_charges(payments, sizes, told)
        told.violations += [str(finding) for finding in store.verify()]
    return told


def open_runs(store: holdfast.types.Store) -> int:
    """Return how many runs have not ended yet."""
    return sum(q.ready + q.delayed + q.running + q.abandoned for q in store.queues())


def executions(world: World) -> dict[str, dict[str, list[str]]]:
    """Return the lines of the ledger, by run and name."""
    found: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for line in world.ledger.read_text().splitlines():
        run, name, *_ = json.loads(line)
        found[run][name].append(line)
    return found


def compare(
    store: holdfast.types.Store,
    run_id: str,
    sizes: Sizes,
    lines: dict[str, list[str]],
    told: Told,
) -> None:
    """See that a run ended right, and that nothing of it was executed after it was recorded."""
    run = store.get(run_id)
    if (run.status, run.result) != ("completed", sizes.steps):
        told.violations.append(f"{run_id}: {run.status}, {run.result!r}, {run.error}")
        return
    entries = store.history(run_id)
    outcomes = [
        entry
        for entry in entries
        if entry.kind == "step_completed"
        or (entry.kind == "step_settled" and entry.body["outcome"] == "done")
    ]
    if len({e.step for e in outcomes}) != len(outcomes):
        told.violations.append(f"{run_id}: two outcomes of one step")
    if len(outcomes) != sizes.steps:
        told.violations.append(f"{run_id}: {len(outcomes)} outcomes of {sizes.steps} steps")
    recorded = {e.body["result"] for e in outcomes if str(e.step).startswith("fleet work")}
    for name, written in lines.items():
        told.repeated += len(written) - 1
        if name.startswith("work") and written[-1] not in recorded:
            told.violations.append(f"{run_id}: {name} was executed again after it was recorded")


def compare_charges(payments: Client, sizes: Sizes, told: Told) -> None:
    """Each run charged once and notified once, whatever happened."""
    state = payments.state()
    charges = [charge["amount"] for key in state.values() for charge in key["charges"]]
    wanted = {5: sizes.runs, 1: sizes.runs}
    seen = {amount: charges.count(amount) for amount in wanted}
    if seen != wanted or len(charges) != 2 * sizes.runs:
        told.violations.append(f"charges: {seen}, not {wanted}")


def takeovers(
    store: holdfast.types.Store, run_id: str, kills: dict[int, float], told: Told
) -> None:
    """Note how long after the kill of its owner a run was taken up again."""
    owner: int | None = None
    for entry in store.history(run_id):
        if entry.kind == "run_claimed":
            if owner is not None and (killed := killed_at(store, owner, kills)) is not None:
                told.takeovers_s.append(max(0.0, entry.at.timestamp() - killed))
            owner = entry.body["owner"]
        elif entry.kind == "run_released":
            owner = None


def killed_at(store: holdfast.types.Store, owner: int, kills: dict[int, float]) -> float | None:
    """Return when the process that was this owner was killed."""
    name = store._backend.owner_name(owner)
    return next((at for pid, at in kills.items() if f" {pid} " in f" {name} "), None)


def main() -> int:
    """Play it at any size: `python -m tests.crash.fleet --processes 8 --runs 1000 --steps 20`."""
    import argparse
    import shutil
    import tempfile

    from tests.crash.harness import payment_server
    from tests.postgres.server import Server

    parser = argparse.ArgumentParser(prog="python -m tests.crash.fleet", description=__doc__)
    parser.add_argument("--postgres", action="store_true", help="on a server of its own")
    for name, value in vars(Sizes(patience_s=3600.0)).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=type(value), default=value)
    options = vars(parser.parse_args())
    folder = Path(tempfile.mkdtemp(prefix="holdfast-fleet-"))
    world = World(folder)
    server = Server() if options.pop("postgres") else None
    with ExitStack() as stack:
        if server is not None:
            world.elsewhere = stack.enter_context(server).database("fleet")
        payments = stack.enter_context(payment_server())
        world.env["CRASH_PAYMENTS"] = payments.url
        told = under_fire(world, payments, Sizes(**options))
    print(told)
    for violation in told.violations:
        print(f"  {violation}")
    if told.violations:
        print(f"kept: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
