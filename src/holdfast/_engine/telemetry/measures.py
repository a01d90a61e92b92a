"""Measures: what one process did in one minute, counted, so that many of them make a trend.

A measure belongs to a flow, or, with the flow "", to the process itself (its places, and how long
they were busy). Measures are added up: over processes, over flows, over minutes.
"""

from __future__ import annotations

import msgspec

Histogram = dict[int, int]
"""How many times something took as long as a bucket says, by the number of the bucket."""


class Counts(msgspec.Struct, omit_defaults=True):
    """Counters, which can be added to other counters."""

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
    """The counters of a process for one flow in one minute."""

    at_us: int
    """The beginning of the minute, by the store's clock."""
    process: str
    flow: str
    """"" is the process itself."""
    counts: Counts
