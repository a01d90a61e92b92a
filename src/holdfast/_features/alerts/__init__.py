"""Alerts: a function or a command is called when a run is held or fails, when the watchdog finds something,
and when a budget is nearly used up."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from holdfast._runtime.feature import Feature, PeriodicJob

if TYPE_CHECKING:
    from holdfast._engine.journal.rows import RunRow
    from holdfast._features.watchdog.model import Finding
    from holdfast._runtime.engine import Engine


def _sweep(engine: Engine, _flows: Callable[[], object]) -> PeriodicJob:
    from holdfast._features.alerts.runtime import AlertSweep

    return AlertSweep(engine)


def _begin_survey(engine: Engine) -> None:
    from holdfast._features.alerts import runtime

    runtime.report_unanswered(engine)


def _report_findings(engine: Engine, row: RunRow, findings: Sequence[Finding]) -> bool:
    from holdfast._features.alerts import runtime

    return runtime.report_findings(engine, row, findings)


FEATURE = Feature(
    name="alerts",
    periodic=_sweep,
    begin_survey=_begin_survey,
    report_findings=_report_findings,
)
