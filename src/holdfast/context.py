"""What code inside a run can ask and record: the run itself, recorded values, usage, progress."""

from __future__ import annotations

from holdfast._api.recorded_context import (
    current_run,
    is_replaying,
    load_progress,
    now,
    record_usage,
    rng,
    save_progress,
    uuid4,
)
from holdfast._runtime.execution.transactional_effects import sql_connection

__all__ = [
    "current_run",
    "is_replaying",
    "load_progress",
    "now",
    "record_usage",
    "rng",
    "save_progress",
    "sql_connection",
    "uuid4",
]
