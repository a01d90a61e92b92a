"""Schedules: flows that are started by cron expressions and intervals, once per time."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast._runtime.feature import Feature, PeriodicJob

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine


def _ticker(engine: Engine, _flows: Callable[[], object]) -> PeriodicJob:
    from holdfast._features.schedules.runtime import Ticker

    return Ticker(engine)


FEATURE = Feature(name="schedules", periodic=_ticker)
