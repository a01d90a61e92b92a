"""Observers of runs, and alerts: base class, registration, and what they receive.

Ready-made observers are modules of this package: `opentelemetry`, `metrics`, `logging`, `alerts`.
None of them is imported here.
"""

from __future__ import annotations

from holdfast._core.alerts import Alert
from holdfast._core.observing import (
    InterruptedStep,
    ObservedAttempt,
    ObservedEntry,
    ObservedRun,
    Observer,
    PriorExecution,
)
from holdfast._runtime.alerting import on_alert
from holdfast._runtime.observing import observe

__all__ = [
    "Alert",
    "InterruptedStep",
    "ObservedAttempt",
    "ObservedEntry",
    "ObservedRun",
    "Observer",
    "PriorExecution",
    "observe",
    "on_alert",
]
