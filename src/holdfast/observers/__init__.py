"""Observers of runs, and alerts: base class, registration, and what they receive.

Ready-made observers are modules of this package: `opentelemetry`, `metrics`, `logging`, `alerts`.
None of them is imported here.
"""

from __future__ import annotations

from holdfast._core.alerts import Alert
from holdfast._core.observing import (
    ObservedAttempt,
    ObservedCut,
    ObservedEntry,
    ObservedPast,
    ObservedRun,
    Observer,
)
from holdfast._runtime.alerting import alert
from holdfast._runtime.observing import observe

__all__ = [
    "Alert",
    "ObservedAttempt",
    "ObservedCut",
    "ObservedEntry",
    "ObservedPast",
    "ObservedRun",
    "Observer",
    "alert",
    "observe",
]
