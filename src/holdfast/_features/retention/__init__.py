"""Retention: a worker removes runs that ended longer ago than `@flow(retention=…)` keeps them, a few at a
time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from holdfast._runtime import log as logs
from holdfast._runtime.clocks import CHANCE
from holdfast._runtime.feature import Feature, PeriodicJob

if TYPE_CHECKING:
    from holdfast._features.retention.store import Swept
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.registry import RegisteredFlow

EVERY_US = 3_600_000_000
"""How often a worker looks, about."""
AT_ONCE = 20
"""How many runs are looked at before the worker takes runs again."""
BETWEEN_US = 200_000


class RetentionJob(PeriodicJob):
    """Removes runs and values whose retention is over, in small batches between other work."""

    def __init__(self, engine: Engine, flows: Callable[[], Mapping[str, RegisteredFlow]]) -> None:
        self._engine = engine
        self._flows = flows
        # Workers that start together do not look together.
        self._due_us = engine.now_us() + int(CHANCE.uniform(0.01, 0.1) * EVERY_US)
        self._under_way: Iterator[Swept] | None = None
        self._removed = 0

    def run(self) -> None:
        """Do a part of it, if it is time."""
        now_us = self._engine.now_us()
        if now_us < self._due_us:
            return
        if self._under_way is None:
            self._under_way = self._all()
        batch = list(islice(self._under_way, AT_ONCE))
        self._removed += sum(swept.removed for swept in batch)
        if len(batch) == AT_ONCE:
            self._due_us = now_us + BETWEEN_US
            return
        if self._removed:
            logs.info("%d runs were removed: their flows keep them no longer", self._removed)
        self._under_way, self._removed = None, 0
        self._due_us = now_us + int(CHANCE.uniform(0.8, 1.2) * EVERY_US)

    def _all(self) -> Iterator[Swept]:
        from holdfast._features.retention import store as sweeping
        from holdfast._features.retention.model import Asked

        kept = self._engine.backend
        for name, flow in self._flows().items():
            if flow.keep_us is not None:
                asked = Asked(at_least_us=flow.keep_us, flow=name)
                yield from (
                    swept for swept in sweeping.Sweeper(kept, asked).sweep() if swept.removed
                )
        sweeping.tidy(kept)
        sweeping.drop_measures(kept)


FEATURE = Feature(name="retention", periodic=RetentionJob)
