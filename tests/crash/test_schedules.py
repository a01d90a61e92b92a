"""Many ticks, five workers, and a SIGKILL every moment: a run for each tick."""

from __future__ import annotations

import datetime as dt
import random
import signal
import time
from collections import Counter

import pytest

import holdfast
from tests import sweeps
from tests.crash.harness import SERVER_IN_SWEEPS, World, wait_for

WORKERS, PLACES = 5, 4
TICKS = sweeps.size(40, 100)
KILLS = sweeps.size(10, 25)
AT_MOST_S = 100.0


@pytest.mark.sweep
@SERVER_IN_SWEEPS
def test_one_run_for_each_tick_however_many_workers_die(world: World) -> None:
    seed = random.Random(7)
    now = dt.datetime.now(dt.UTC)
    fast = now + dt.timedelta(seconds=2)
    past = now - dt.timedelta(hours=TICKS - 0.5)
    starts = (fast.isoformat(), past.isoformat())
    workers = [world.start("ticking.py", *starts, lease_s=2) for _ in range(WORKERS)]
    kills = 0
    ticks = {
        *(run_id("fast", fast + dt.timedelta(seconds=n / 10)) for n in range(TICKS)),
        *(run_id("past", past + dt.timedelta(hours=n)) for n in range(TICKS)),
    }
    deadline = time.monotonic() + AT_MOST_S
    with world.store() as store:
        while kills < KILLS or not ticks <= completed(store):
            if kills < KILLS:
                # Whatever it is at: looking, starting runs, moving the cursor, executing.
                wait_for(lambda: bool(store.runs(limit=1)), "the first run")
                number = seed.randrange(WORKERS)
                assert workers[number].kill().killed
                workers[number] = world.start("ticking.py", *starts, lease_s=2)
                kills += 1
            if time.monotonic() > deadline:
                left = {name: states(store).get(name) for name in ticks - completed(store)}
                raise AssertionError(f"not completed after {kills} kills: {left}")
            # Kills that follow each other before a run got on make it look like their cause.
            for run in store.runs(status="held"):
                assert run.held_reason == "quarantined", run
                store.resume(run.run_id, actor="test")
            wait_for(lambda: store._backend.wait_for_change(0.4), "a change")
        for worker in workers:
            worker.until(f"ticking {worker.process.pid}").signal(signal.SIGTERM)
        ended = [worker.end() for worker in workers]
        assert all(worker.code == 0 for worker in ended), ended

        made = Counter(run.run_id for run in store.runs(limit=100_000))
        assert ticks <= set(made), "none was left out"
        assert not [name for name in made if name.startswith("past") and name not in ticks]
        assert set(made.values()) == {1}
        for name in sorted(ticks):
            view = store.get(name)
            assert view.status == "completed"
            assert view.tags["tick"] == name.partition("::")[2]
        assert store.verify() == []
    # Outside: no tick without its run, and no recorded step executed again; a step that was cut
    # short by a kill was.
    counts = Counter((e.step, e.run) for e in world.executions())
    assert sum(counts.values()) - len(counts) <= kills * PLACES
    assert len([1 for step, _ in counts if step == "past"]) == TICKS


def completed(store: holdfast.types.Store) -> set[str]:
    return {run.run_id for run in store.runs(status="completed", limit=100_000)}


def states(store: holdfast.types.Store) -> dict[str, tuple[str, str | None]]:
    return {run.run_id: (run.status, run.held_reason) for run in store.runs(limit=100_000)}


def run_id(name: str, tick: dt.datetime) -> str:
    return f"{name}::{tick.replace(tzinfo=None).isoformat()}Z"
