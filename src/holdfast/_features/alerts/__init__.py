"""Alerts: somebody is told of runs that are held or failed, of findings and of budgets that run out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast._runtime.feature import Feature, PeriodicJob

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine


def _sweep(engine: Engine, _flows: Callable[[], object]) -> PeriodicJob:
    from holdfast._features.alerts.runtime import AlertSweep

    return AlertSweep(engine)


FEATURE = Feature(name="alerts", periodic=_sweep)
