"""Start runs at certain times."""

from __future__ import annotations

from holdfast._features.schedules.runtime import SCHEDULED_TIME, schedule

__all__ = [
    "SCHEDULED_TIME",
    "schedule",
]
