"""A run that kills its process takes no other run with it: what died twice is executed alone."""

from __future__ import annotations

import time

import holdfast
from tests.crash.fleet import LOOK_S, Sizes, open_runs, working
from tests.crash.harness import SCRIPTS, SERVER_IN_SWEEPS, World

INNOCENTS = 10
PATIENCE_S = 150.0


@SERVER_IN_SWEEPS
def test_a_run_that_kills_its_processes_is_quarantined_and_no_other(world: World):
    from tests.crash.scripts.poisoned_flows import innocent, poison

    numbers = range(INNOCENTS)
    with world.store() as store:
        poison.with_options(store=store).submit("poison")
        for number in numbers:
            innocent.with_options(store=store).submit(f"innocent-{number}", number)
        sizes = Sizes(processes=2, concurrency=20)
        with working(world, sizes, script=SCRIPTS / "poisoned_flows.py"):
            deadline_s = time.monotonic() + PATIENCE_S
            while open_runs(store):
                assert time.monotonic() < deadline_s, [run_of(store, number) for number in numbers]
                time.sleep(LOOK_S)
        ended = [store.get(f"innocent-{number}") for number in numbers]
        assert [(run.status, run.result) for run in ended] == [
            ("completed", number + 2) for number in numbers
        ]
        bad = store.get("poison")
        assert (bad.status, bad.held_reason) == ("held", "quarantined")
        died_beside = [claims(store, f"innocent-{number}") for number in numbers]
    assert max(died_beside) > 1, "the poison was alone from the beginning: nothing was shown"
    log = (world.root / "worker.log").read_text()
    assert log.count("run poison of poison is executed alone: ") == 2
    assert log.count("run poison of poison is quarantined: 4 times in a row its process ended") == 1
    assert "see: holdfast explain poison" in log


def claims(store: holdfast.types.Store, run_id: str) -> int:
    """Return how often a run was taken."""
    return sum(entry.kind == "run_claimed" for entry in store.history(run_id))


def run_of(store: holdfast.types.Store, number: int) -> str:
    """Say how an innocent run stands."""
    run = store.get(f"innocent-{number}")
    return f"{run.run_id}: {run.status}"
