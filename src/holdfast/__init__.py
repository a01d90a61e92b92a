"""Holdfast: durable runs for AI agents, in Python.

Decorate plain functions with `step`, `effect` and `flow`; `my_flow.run("run-id", …)` starts a run,
or picks it up where it stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import aio, errors
from holdfast._api.blocks import run
from holdfast._api.decorators import effect, plan, step
from holdfast._api.fanout import each, gather, run_step
from holdfast._api.flows import flow
from holdfast._api.loops import turns
from holdfast._api.opened_store import open as open  # noqa: A004 - the design's name
from holdfast._api.recorded_context import emit, idempotency_key
from holdfast._api.timers import sleep, wait_for_signal
from holdfast._engine.scripts.doubt_policies import NOT_DONE, UNKNOWN, Done
from holdfast._engine.scripts.retry import Retry
from holdfast._features.approvals.model import Approval
from holdfast._features.budgets.model import Budget
from holdfast._features.memory.runtime import memory
from holdfast._features.questions.runtime import ask
from holdfast._features.watchdog.model import Watchdog
from holdfast._runtime.queues import Queue
from holdfast._runtime.signatures import resource

if TYPE_CHECKING:
    from holdfast import (
        adapters,
        context,
        observers,
        pricing,
        redaction,
        schedules,
        types,
        versioning,
    )

__version__ = "0.1.0"

# `open` is public too; `from holdfast import *` leaves the built-in function alone.
__all__ = [
    "NOT_DONE",
    "UNKNOWN",
    "Approval",
    "Budget",
    "Done",
    "Queue",
    "Retry",
    "Watchdog",
    "adapters",
    "aio",
    "ask",
    "context",
    "each",
    "effect",
    "emit",
    "errors",
    "flow",
    "gather",
    "idempotency_key",
    "memory",
    "observers",
    "plan",
    "pricing",
    "redaction",
    "resource",
    "run",
    "run_step",
    "schedules",
    "sleep",
    "step",
    "turns",
    "types",
    "versioning",
    "wait_for_signal",
]

_MODULES = {
    "adapters",
    "context",
    "observers",
    "pricing",
    "redaction",
    "schedules",
    "types",
    "versioning",
}


def __getattr__(name: str) -> object:
    """Load a public module when it is first used: `holdfast.context` needs no import of its own."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return importlib.import_module(f"{__name__}.{name}")
