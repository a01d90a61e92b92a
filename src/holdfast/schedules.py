"""Start runs at certain times."""

from __future__ import annotations

from holdfast._runtime.schedules import TICK, schedule

__all__ = [
    "TICK",
    "schedule",
]
