"""Holdfast: durable runs for AI agents, in Python.

Decorate plain functions with `step`, `effect` and `flow`; `my_flow.run("run-id", …)` starts a run,
or picks it up where it stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import aio, errors
from holdfast._core.approvals import Approval
from holdfast._core.budgets import Budget
from holdfast._core.effects import NOT_DONE, UNKNOWN, Done
from holdfast._core.findings import Watchdog
from holdfast._core.retry import Retry
from holdfast._opened import open as open  # noqa: A004 - the design's name
from holdfast._runtime.asking import ask
from holdfast._runtime.blocks import run
from holdfast._runtime.decorators import effect, step
from holdfast._runtime.fanout import each, gather, run_step
from holdfast._runtime.flows import flow
from holdfast._runtime.loops import turns
from holdfast._runtime.memory import memory
from holdfast._runtime.plans import plan
from holdfast._runtime.queues import Queue
from holdfast._runtime.recorded import emit, idempotency_key
from holdfast._runtime.signatures import resource
from holdfast._runtime.timing import sleep, wait_for_signal

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
