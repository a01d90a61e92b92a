"""What the tests of this folder share: a stop on the way, and a journal in short."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import holdfast


class Stop:
    """Interrupts a run the first time it passes here; the run is given back, and can go on."""

    def __init__(self) -> None:
        self.passed = 0

    def here(self) -> None:
        self.passed += 1
        if self.passed == 1:
            raise KeyboardInterrupt


def kinds(store: holdfast.types.Store, run_id: str, step: str | None = None) -> list[str]:
    """Return the kinds of a run's entries, or of one step's."""
    return [e.kind for e in store.history(run_id) if step is None or e.step == step]


def steps(store: holdfast.types.Store, run_id: str) -> dict[str, str]:
    """Return the status of every step by its key."""
    return {step.key: step.status for step in store.get(run_id).steps}


def interrupted(work: Callable[[], Any]) -> None:
    """Do the work, which must end in a KeyboardInterrupt."""
    try:
        work()
    except KeyboardInterrupt:
        return
    raise AssertionError("it was not interrupted")
