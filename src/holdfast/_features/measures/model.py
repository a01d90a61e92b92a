"""Measures: what one process did in one minute, counted, so that many of them make a trend. Pure.

A measure belongs to a flow, or, with the flow "", to the process itself (its places, and how long
they were busy). Measures are added up: over processes, over flows, over minutes. Lengths of time are
kept as histograms with fixed buckets, four to each doubling, because percentiles cannot be added and
histograms can; a percentile is then right to within a fifth of its value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

MINUTE_US = 60_000_000
PARTS = 4
"""Buckets to each doubling."""
LAST = 48 * PARTS
"""The last bucket has all that is longer: years."""
WIDTH = 2.0 ** (1 / PARTS)
"""How many times as long the end of a bucket is as its beginning."""

Histogram = dict[int, int]
"""How many times something took as long as a bucket says, by the number of the bucket."""


class Counts(msgspec.Struct, omit_defaults=True):
    """What is counted. All of it can be added to other counts."""

    steps: int = 0
    """Steps that were completed."""
    attempts: int = 0
    """Attempts that ended, well or not."""
    errors: int = 0
    """Attempts that failed or left a doubt."""
    doubts: int = 0
    """Effects that were left in doubt."""
    retries: int = 0
    """Attempts that were not the first of their step."""
    traced: int = 0
    """Attempts that had a span of a trace."""
    held: int = 0
    """How often a run was held."""
    cost_nanos: int = 0
    tokens: int = 0
    ended: dict[str, int] = {}
    """Runs that ended, by status."""
    attempt_us: Histogram = {}
    """How long attempts took."""
    run_us: Histogram = {}
    """How long completed runs took from their start to their end, waits included."""
    span_us: int = 0
    """Of a worker: the time that the next three are about, from the measure's minute on."""
    places_us: int = 0
    """Its places, times that time."""
    busy_us: int = 0
    """How much of it they were in use."""
    ready: int = 0
    """Runs that were ready in queues, all samples together."""
    samples: int = 0
    """How many samples that were."""

    def add(self, other: Counts) -> None:
        """Add other counts to these."""
        for name, amount in zip(_NAMES, msgspec.structs.astuple(other), strict=True):
            if not amount:
                continue
            if isinstance(amount, int):
                setattr(self, name, getattr(self, name) + amount)
                continue
            table = getattr(self, name)
            for key, count in amount.items():
                table[key] = table.get(key, 0) + count


_NAMES = Counts.__struct_fields__


class Measure(msgspec.Struct):
    """What a process did for one flow in one minute."""

    at_us: int
    """The beginning of the minute, by the store's clock."""
    process: str
    flow: str
    """"" is the process itself."""
    counts: Counts


def minute_of(at_us: int) -> int:
    """Return the beginning of the minute that a moment is in."""
    return at_us - at_us % MINUTE_US


def merged(measures: Iterable[Measure]) -> Counts:
    """Return the counts of several measures together."""
    total = Counts()
    for measure in measures:
        total.add(measure.counts)
    return total


# -- histograms --------------------------------------------------------------------------------


def bucket_of(us: int) -> int:
    """Return the number of the bucket that a length of time belongs to."""
    return 0 if us < 1 else min(LAST, 1 + int(math.log2(us) * PARTS))


def note(histogram: Histogram, us: int) -> None:
    """Count a length of time."""
    bucket = bucket_of(us)
    histogram[bucket] = histogram.get(bucket, 0) + 1


def bounds(bucket: int) -> tuple[float, float]:
    """Return from when to when a bucket goes, in microseconds."""
    return (0.0, 1.0) if bucket < 1 else (WIDTH ** (bucket - 1), WIDTH**bucket)


def percentile(histogram: Histogram, share: float) -> float | None:
    """Return the length that this share of all is not longer than, in microseconds; None of none.
    Inside a bucket its members are taken to be spread evenly."""
    total = sum(histogram.values())
    if not total:
        return None
    rank, passed = max(share * total, 0.0), 0
    for bucket in sorted(histogram):
        count = histogram[bucket]
        if count and passed + count >= rank:
            low, high = bounds(bucket)
            return low + (high - low) * max(0.0, rank - passed) / count
        passed += count
    return bounds(max(histogram))[1]
