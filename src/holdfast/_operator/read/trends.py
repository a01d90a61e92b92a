"""Trends: latency, cost, errors, trace coverage and saturation over time, for a whole fleet.

Every process that executes runs keeps measures in the store, about one row a minute and flow. They
are added up here into a hundred or so buckets of time; no other system is needed.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator

import msgspec

from holdfast._engine.telemetry.measures import Counts, Measure
from holdfast._engine.text import count, moment
from holdfast._engine.values.durations import Duration, micros
from holdfast._engine.values.moments import at
from holdfast._features.measures.model import MINUTE_US, minute_of, percentile
from holdfast._stores.contract import Store
from holdfast.errors import Corrupt, UsageError

LOST = (
    "Processes write their counts once a minute. What a process that was killed had not written, up to "
    "its last minute and a pulse, is missing here; journals have it."
)
"""What is not in any trend."""

DAY = "24h"
SINCE_MAX_S = 366 * 86_400
BUCKETS_MAX = 120
SIZES_S = (60, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400, 604_800)
"""How long a bucket may be."""
PAGE_US = 3_600_000_000
"""How much time is asked of the store at once, at least."""
PAGE_ROWS = 100_000


class Series(msgspec.Struct, frozen=True):
    """One value for each bucket of time, oldest first. A count of nothing is 0; what cannot be known
    because there is nothing to say it of is None."""

    steps: list[int]
    attempts: list[int]
    errors: list[int]
    error_rate: list[float | None]
    """Errors by attempts."""
    doubts: list[int]
    retries: list[int]
    step_p50_ms: list[float | None]
    """How long attempts took."""
    step_p95_ms: list[float | None]
    run_p50_s: list[float | None]
    """How long runs took that were completed, from their start on, waits included."""
    run_p95_s: list[float | None]
    runs_completed: list[int]
    runs_failed: list[int]
    runs_held: list[int]
    cost_usd: list[float]
    tokens: list[int]
    traced: list[float | None]
    """The share of attempts that had a span of a trace."""
    saturation: list[float | None]
    """The share of all workers' places that was in use."""
    waiting: list[float | None]
    """Runs that were ready in queues and had no place yet."""


class Trends(msgspec.Struct, frozen=True):
    """What a fleet did over time."""

    start: dt.datetime
    end: dt.datetime
    """The end of the last bucket, which is still being filled."""
    bucket_s: int
    flow: str | None
    """The flow that it is about; None is all. Saturation and waiting are always of the fleet."""
    flows: list[str]
    """The flows that have measures in this time, all of them."""
    processes: int
    """How many processes wrote measures."""
    series: Series
    totals: Series
    """The same over the whole time: lists with one value each."""
    lost: str
    """What is missing if processes were killed, for people."""
    notes: list[str]
    """What is not as it should be, for people: damaged measures are left out, and it is reported here."""


def trends(store: Store, *, since: Duration = DAY, flow: str | None = None) -> Trends:
    """Return what was measured since so long ago, of all flows or one."""
    since_us = micros(since, "trends(since=…)", positive=True)
    if since_us > SINCE_MAX_S * 1_000_000:
        raise UsageError(f"trends(since={since!r}): at most 366 days")
    now_us = store.now_us()
    size_us = _size_s(since_us / 1e6) * 1_000_000
    start_us = (now_us - since_us) // size_us * size_us
    buckets = [Bucket() for _ in range((now_us - start_us) // size_us + 1)]
    seen = _Seen()
    for measure in _read(store, start_us, start_us + len(buckets) * size_us, seen):
        if measure.flow == "":
            _spread(measure, buckets, start_us, size_us)
        elif flow is None or measure.flow == flow:
            buckets[(measure.at_us - start_us) // size_us].counts.add(measure.counts)
    total = Bucket()
    for bucket in buckets:
        total.add(bucket)
    return Trends(
        start=at(start_us),
        end=at(start_us + len(buckets) * size_us),
        bucket_s=size_us // 1_000_000,
        flow=flow,
        flows=sorted(seen.flows),
        processes=len(seen.processes),
        series=_series(buckets),
        totals=_series([total]),
        lost=LOST,
        notes=seen.notes,
    )


class Bucket:
    """What is known of one span of time."""

    __slots__ = ("busy", "counts", "places", "ready", "samples")

    def __init__(self) -> None:
        self.counts = Counts()
        self.places = self.busy = self.ready = self.samples = 0.0

    def add(self, other: Bucket) -> None:
        """Add what is known of another span."""
        self.counts.add(other.counts)
        self.places += other.places
        self.busy += other.busy
        self.ready += other.ready
        self.samples += other.samples


class _Seen:
    """What was met on the way through the measures."""

    def __init__(self) -> None:
        self.flows: set[str] = set()
        self.processes: set[str] = set()
        self.notes: list[str] = []


def _size_s(since_s: float) -> int:
    wanted = since_s / BUCKETS_MAX
    return next((size for size in SIZES_S if size >= wanted), SIZES_S[-1])


def _read(store: Store, start_us: int, end_us: int, seen: _Seen) -> Iterator[Measure]:
    """Yield the measures of a time, a page of time after the other."""
    page_us = max(PAGE_US, (end_us - start_us) // BUCKETS_MAX // MINUTE_US * MINUTE_US)
    # A worker that had nothing to do tells of several minutes at once, from the first of them on.
    for at_us in range(minute_of(start_us), end_us, page_us):
        yield from _page(store, at_us, min(end_us, at_us + page_us), seen)


def _page(store: Store, after_us: int, before_us: int, seen: _Seen) -> Iterator[Measure]:
    when = moment(after_us)
    try:
        found = store.measures(after_us, before_us, PAGE_ROWS)
    except Corrupt as damage:
        seen.notes.append(f"measures from {when} on cannot be read and are left out: {damage}")
        return
    if found.damaged:
        number = count(len(found.damaged), "measure is", "measures are")
        seen.notes.append(
            f"{number} damaged and left out, from {when} on; see: holdfast store verify"
        )
    if len(found.rows) + len(found.damaged) == PAGE_ROWS:
        seen.notes.append(f"only the first {PAGE_ROWS:,} measures from {when} on are counted")
    for measure in found.rows:
        seen.processes.add(measure.process)
        if measure.flow:
            seen.flows.add(measure.flow)
        yield measure


def _spread(measure: Measure, buckets: list[Bucket], start_us: int, size_us: int) -> None:
    """Put what a worker says of its places into the buckets that it is about, by their share."""
    counts = measure.counts
    from_us, until_us = measure.at_us, measure.at_us + max(counts.span_us, 1)
    first = max(0, (from_us - start_us) // size_us)
    last = min(len(buckets) - 1, (until_us - 1 - start_us) // size_us)
    for number in range(first, last + 1):
        bucket, begin_us = buckets[number], start_us + number * size_us
        inside = min(until_us, begin_us + size_us) - max(from_us, begin_us)
        share = inside / (until_us - from_us)
        bucket.places += counts.places_us * share
        bucket.busy += counts.busy_us * share
        bucket.ready += counts.ready
        bucket.samples += counts.samples


def _series(buckets: list[Bucket]) -> Series:
    counts = [bucket.counts for bucket in buckets]
    return Series(
        steps=[it.steps for it in counts],
        attempts=[it.attempts for it in counts],
        errors=[it.errors for it in counts],
        error_rate=[_share(it.errors, it.attempts) for it in counts],
        doubts=[it.doubts for it in counts],
        retries=[it.retries for it in counts],
        step_p50_ms=_percentiles(counts, lambda it: percentile(it.attempt_us, 0.50), 1e3),
        step_p95_ms=_percentiles(counts, lambda it: percentile(it.attempt_us, 0.95), 1e3),
        run_p50_s=_percentiles(counts, lambda it: percentile(it.run_us, 0.50), 1e6),
        run_p95_s=_percentiles(counts, lambda it: percentile(it.run_us, 0.95), 1e6),
        runs_completed=[it.ended.get("completed", 0) for it in counts],
        runs_failed=[it.ended.get("failed", 0) for it in counts],
        runs_held=[it.held for it in counts],
        cost_usd=[it.cost_nanos / 1e9 for it in counts],
        tokens=[it.tokens for it in counts],
        traced=[_share(it.traced, it.attempts) for it in counts],
        saturation=[_share(it.busy, it.places) for it in buckets],
        waiting=[it.ready / it.samples if it.samples else None for it in buckets],
    )


def _share(part: float, whole: float) -> float | None:
    return round(min(1.0, part / whole), 4) if whole else None


def _percentiles(
    counts: list[Counts], of: Callable[[Counts], float | None], unit: float
) -> list[float | None]:
    found = [of(it) for it in counts]
    return [None if us is None else round(us / unit, 4) for us in found]
