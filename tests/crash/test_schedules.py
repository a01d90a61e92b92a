"""A hundred ticks, five workers, and a SIGKILL every moment: a hundred runs."""

from __future__ import annotations

import datetime as dt
import random
import signal
from collections import Counter

import pytest

from tests.crash.harness import World, wait_for

WORKERS = 5
TICKS = 100


@pytest.mark.parametrize("world", ["sqlite", "postgresql"], indirect=True)
def test_one_run_for_each_tick_however_many_workers_die(world: World) -> None:
    seed = random.Random(7)
    now = dt.datetime.now(dt.UTC)
    fast = now + dt.timedelta(seconds=2)
    past = now - dt.timedelta(hours=TICKS - 0.5)
    starts = (fast.isoformat(), past.isoformat())
    workers = [world.start("ticking.py", *starts, lease_s=2) for _ in range(WORKERS)]
    kills = 0
    with world.store() as store:
        until_us = int((fast + dt.timedelta(seconds=TICKS / 10)).timestamp() * 1e6)
        while store.kept.now_us() < until_us or not all_ended(store):
            number = seed.randrange(WORKERS)
            if kills < 25:
                # Whatever it is at: looking, starting runs, moving the cursor, executing.
                wait_for(lambda: bool(store.list(limit=1)), "the first run")
                assert workers[number].kill().killed
                workers[number] = world.start("ticking.py", *starts, lease_s=2)
                kills += 1
            wait_for(lambda: store.kept.wait_for_change(0.4), "a change")
        for worker in workers:
            worker.signal(signal.SIGTERM)
        ended = [worker.end() for worker in workers]
        assert all(worker.code == 0 for worker in ended), ended

        made = Counter(run.run_id for run in store.list(limit=100_000))
        first_ticks = {
            *(run_id("fast", fast + dt.timedelta(seconds=n / 10)) for n in range(TICKS)),
            *(run_id("past", past + dt.timedelta(hours=n)) for n in range(TICKS)),
        }
        assert kills == 25
        assert first_ticks <= set(made), "none was left out"
        assert not [name for name in made if name.startswith("past") and name not in first_ticks]
        assert set(made.values()) == {1}
        for name in sorted(first_ticks):
            view = store.get(name)
            assert view.status == "completed"
            assert view.tags["tick"] == name.partition("::")[2]
        assert store.verify() == []
    # Outside: no tick without its run, and no recorded step executed again; a step that was cut
    # short by a kill was.
    counts = Counter((e.step, e.run) for e in world.executions())
    assert sum(counts.values()) - len(counts) <= kills * 4
    assert len([1 for step, _ in counts if step == "past"]) == TICKS


def all_ended(store) -> bool:
    return not store.list(status=["queued", "running", "waiting"], limit=1)


def run_id(name: str, tick: dt.datetime) -> str:
    return f"{name}::{tick.replace(tzinfo=None).isoformat()}Z"
