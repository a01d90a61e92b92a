"""What processes measured is what they did. One that is killed takes its last minute with it, at most,
and nothing else."""

from __future__ import annotations

import signal
from collections import Counter, defaultdict
from typing import Any

import holdfast
from holdfast._engine.telemetry.measures import Counts, Measure
from holdfast._features.measures.model import merged
from holdfast._operator.read.trends import trends
from tests.crash.harness import BOTH_STORES, World, wait_for

MINUTE_US = 500_000
"""How long a minute of the script is."""
FLOW = "measured work of a process"
ALWAYS = 1 << 60


def measured(store: holdfast.types.Store) -> dict[int, list[Measure]]:
    """Return the measures by the process that wrote them."""
    found: dict[int, list[Measure]] = defaultdict(list)
    for row in store._backend.measures(0, ALWAYS).rows:
        found[int(row.process.split(":")[1])].append(row)
    return found


def of_flow(rows: list[Measure]) -> Counts:
    return merged(row for row in rows if row.flow == FLOW)


def steps_of(store: holdfast.types.Store) -> tuple[Counter[int], dict[int, list[int]]]:
    """Return how many steps each process has recorded, as the journals say, and when."""
    counts: Counter[int] = Counter()
    times: dict[int, list[int]] = defaultdict(list)
    for run in store.runs(limit=100_000):
        for entry in store.history(run.run_id):
            if entry.kind == "step_completed":
                pid: Any = entry.body["result"]
                counts[pid] += 1
                times[pid].append(int(entry.at.timestamp() * 1e6))
    return counts, times


@BOTH_STORES
def test_a_killed_worker_loses_its_last_minute_at_most(world: World) -> None:
    first = world.start("measured.py", "first", lease_s=1.5)
    with world.store() as store:
        told = wait_for(
            lambda: len({row.at_us for row in measured(store)[first.process.pid] if row.flow}) >= 3,
            "three minutes of measures",
        )
        assert told
        before = measured(store)[first.process.pid]
        assert first.kill().killed
        second = world.start("measured.py", "second", lease_s=1.5)
        wait_for(lambda: len(store.runs(status="completed", limit=100_000)) > 20, "runs")
        wait_for(lambda: any(run.run_id == "second-9" for run in store.runs(limit=20)), "ten runs")
        second.signal(signal.SIGTERM)
        ended = second.end()
        assert ended.code == 0, ended.stderr

        there = measured(store)
        counts, times = steps_of(store)
        # The one that ended in good order has told all that it did.
        whole = of_flow(there[second.process.pid])
        assert whole.steps == whole.attempts == counts[second.process.pid]
        assert whole.ended["completed"] >= ended.said["runs"]
        assert whole.errors == 0

        # The one that was killed had told all minutes but the last; and what it told is there.
        kept = there[first.process.pid]
        assert all(row in kept for row in before)
        last_us = max(row.at_us for row in kept if row.flow) + MINUTE_US
        done = sum(at_us < last_us for at_us in times[first.process.pid])
        # What is committed as a minute ends may be counted in the next: one of two places.
        assert done - 2 <= of_flow(kept).steps <= done <= counts[first.process.pid]

        found = trends(store._backend, since="1h")
        assert sum(found.series.steps) == whole.steps + of_flow(kept).steps
        assert found.processes == 2
        assert found.totals.saturation[0] is not None
        assert 0 < found.totals.saturation[0] <= 1
        assert found.notes == []
        assert store.verify() == []
