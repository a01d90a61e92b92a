"""Waiting for facts of this process, as opposed to waiting for time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import holdfast

WAIT_AT_MOST_S = 20.0


def until(condition: Callable[[], Any]) -> Any:
    """Wait until the condition holds, and return what it said."""
    deadline_s = time.monotonic() + WAIT_AT_MOST_S
    while not (said := condition()):
        assert time.monotonic() < deadline_s, "it never came"
        time.sleep(0.002)
    return said


def is_free(store: holdfast.types.Store, run_id: str = "r") -> bool:
    """Say whether nobody has the run, which is there."""
    row = store._backend.get(run_id)
    assert row is not None
    return row.owner is None
