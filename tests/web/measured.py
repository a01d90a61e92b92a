"""A day of measures, as workers of a fleet would have written them: for pictures of plots that have
something to show. What real workers measure is looked at by a test of its own."""

from __future__ import annotations

import math
import random

from holdfast._engine.telemetry.measures import Counts, Measure
from holdfast._features.measures.model import MINUTE_US, bucket_of, minute_of
from holdfast._stores.sqlite.sqlite_store import SqliteStore

MINUTES = 24 * 60
NIGHT = range(620, 690)
"""Minutes in which nobody worked."""


def write_a_day(path: str) -> None:
    """Write a day of two workers that is over now, always the same one."""
    chance = random.Random(11)
    store = SqliteStore(path)
    try:
        now_us = minute_of(store.now_us())
        measures = [
            measure
            for minute in range(MINUTES)
            if minute not in NIGHT
            for measure in _minute(now_us - (MINUTES - minute) * MINUTE_US, minute, chance)
        ]
        store.put_measures(measures)
    finally:
        store.close()


def _minute(at_us: int, minute: int, chance: random.Random) -> list[Measure]:
    load = 0.55 + 0.35 * math.sin(minute / 210) + chance.gauss(0, 0.05)
    busy = min(1.0, max(0.02, load))
    runs = max(0, round(busy * 6 + chance.gauss(0, 1)))
    attempts = runs * 4
    slow = 1 + 2 * (900 < minute < 960)  # An hour in which the model was slow, and failed.
    errors = sum(chance.random() < 0.02 * slow**2 for _ in range(attempts))
    took = [round(chance.lognormvariate(13.2, 0.5) * slow) for _ in range(attempts)]
    counts = Counts(
        steps=attempts - errors,
        attempts=attempts,
        errors=errors,
        traced=max(0, attempts - (chance.random() < 0.2)),
        cost_nanos=attempts * 4_000_000,
        tokens=attempts * 1500,
        held=int(chance.random() < 0.02 * slow),
        ended={"completed": runs, "failed": int(errors > 3)},
    )
    for us in took:
        bucket = bucket_of(us)
        counts.attempt_us[bucket] = counts.attempt_us.get(bucket, 0) + 1
    for number in range(runs):
        bucket = bucket_of(sum(took[number * 4 : number * 4 + 4]))
        counts.run_us[bucket] = counts.run_us.get(bucket, 0) + 1
    places_us = 8 * MINUTE_US
    process = Counts(
        span_us=MINUTE_US,
        places_us=places_us,
        busy_us=round(places_us * busy),
        ready=max(0, round((busy - 0.7) * 40)),
        samples=1,
    )
    return [Measure(at_us, "crew-1", "web-order", counts), Measure(at_us, "crew-1", "", process)]
