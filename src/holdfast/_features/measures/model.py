"""How measures make a trend: minutes, and histograms of lengths of time. Pure.

Lengths of time are kept as histograms with fixed buckets, four to each doubling, because percentiles
cannot be added and histograms can; a percentile is then right to within a fifth of its value.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from holdfast._engine.telemetry.measures import Counts, Histogram, Measure

MINUTE_US = 60_000_000
PARTS = 4
"""Buckets to each doubling."""
LAST = 48 * PARTS
"""The last bucket has all that is longer: years."""
WIDTH = 2.0 ** (1 / PARTS)
"""How many times as long the end of a bucket is as its beginning."""


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
