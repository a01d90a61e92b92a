"""Measures: one process's counts of one minute, which add up to a trend.

A measure belongs to a flow, or, with the flow "", to the process itself (its places, and how long
they were busy). Measures are added up over processes, flows and minutes.
"""

from __future__ import annotations

import msgspec

Histogram = dict[int, int]
"""How often a duration fell into a bucket, by the bucket's number."""


class Counts(msgspec.Struct, omit_defaults=True):
    """Counters, which can be added to other counters."""

    steps: int = 0
    """Completed steps."""
    attempts: int = 0
    """Ended attempts, successful or not."""
    errors: int = 0
    """Attempts that failed or left a doubt."""
    doubts: int = 0
    """Effects left in doubt."""
    retries: int = 0
    """Attempts that were not the first of their step."""
    traced: int = 0
    """Attempts with a trace span."""
    held: int = 0
    """How often a run was held."""
    cost_nanos: int = 0
    tokens: int = 0
    ended: dict[str, int] = {}
    """Ended runs, by status."""
    attempt_us: Histogram = {}
    """Durations of attempts."""
    run_us: Histogram = {}
    """Durations of completed runs from start to end, waits included."""
    span_us: int = 0
    """Of a worker: the time that the next three cover, from the measure's minute on."""
    places_us: int = 0
    """Its places, times that time."""
    busy_us: int = 0
    """The share of that in which they were in use."""
    ready: int = 0
    """Runs that were ready in queues, summed over all samples."""
    samples: int = 0
    """The number of those samples."""

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
    """The counters of a process for one flow in one minute."""

    at_us: int
    """The beginning of the minute, by the store's clock."""
    process: str
    flow: str
    """"" is the process itself."""
    counts: Counts
