"""Observers of runs, and alerts: base class, registration, and the objects that they receive.

Ready-made observers are modules of this package: `opentelemetry`, `metrics`, `logging`, `alerts`.
This module imports none of them.
"""

from __future__ import annotations

from holdfast._engine.telemetry.observer_events import (
    InterruptedStep,
    ObservedAttempt,
    ObservedEntry,
    ObservedRun,
    Observer,
    PriorExecution,
)
from holdfast._features.alerts.model import Alert
from holdfast._features.alerts.runtime import on_alert
from holdfast._runtime.observer_registry import observe

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
