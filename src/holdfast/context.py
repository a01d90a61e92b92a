"""What code inside a run can ask and record: the run itself, recorded values, usage, progress."""

from __future__ import annotations

from holdfast._runtime.recorded import (
    current_run,
    last_progress,
    new_id,
    now,
    progress,
    replaying,
    rng,
    usage,
)
from holdfast._runtime.transactions import connection

__all__ = [
    "connection",
    "current_run",
    "last_progress",
    "new_id",
    "now",
    "progress",
    "replaying",
    "rng",
    "usage",
]
