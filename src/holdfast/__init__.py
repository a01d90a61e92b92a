"""Holdfast: durable runs for AI agents, in Python.

Decorate plain functions with `step`, `effect` and `flow`; `my_flow.run("run-id", …)` starts a run,
or picks it up where it stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import aio, errors
from holdfast._core.alerts import Alert
from holdfast._core.approvals import Approve
from holdfast._core.budgets import Budget, Price
from holdfast._core.comparing import Preflight
from holdfast._core.effects import NOT_DONE, UNKNOWN, Done, Fail, NotDone, Unknown
from holdfast._core.findings import Finding, Watch
from holdfast._core.lifecycle import Status
from holdfast._core.masks import masked
from holdfast._core.observing import (
    ObservedAttempt,
    ObservedCut,
    ObservedEntry,
    ObservedPast,
    ObservedRun,
    Observer,
)
from holdfast._core.retry import Retry
from holdfast._core.secrets import Secret
from holdfast._opened import Store, open as open, stream  # noqa: A004 - the design's name
from holdfast._ops.entries import EntryView as Entry
from holdfast._runtime.alerting import alert
from holdfast._runtime.asking import ask
from holdfast._runtime.blocks import run
from holdfast._runtime.decorators import AsyncEffect, Effect, effect, recorded, step
from holdfast._runtime.fanout import call, each, gather
from holdfast._runtime.fingerprints import file, fingerprint
from holdfast._runtime.flows import AsyncFlow, Flow, flow
from holdfast._runtime.functions import AsyncStep, Step
from holdfast._runtime.handle import Handle
from holdfast._runtime.keyed import keyed
from holdfast._runtime.loops import turns
from holdfast._runtime.memory import Memory, memory
from holdfast._runtime.observing import observe
from holdfast._runtime.plans import plan
from holdfast._runtime.prices import prices
from holdfast._runtime.queues import Queue
from holdfast._runtime.recorded import (
    attempt,
    current_run,
    emit,
    idempotency_key,
    last_progress,
    new_id,
    now,
    progress,
    replaying,
    rng,
    usage,
)
from holdfast._runtime.registry import register
from holdfast._runtime.schedules import TICK, Schedule, schedule
from holdfast._runtime.secrets import mask_record, secret
from holdfast._runtime.signatures import use
from holdfast._runtime.timing import sleep, wait
from holdfast._runtime.transactions import connection
from holdfast._runtime.versions import patched
from holdfast._runtime.watching import watch
from holdfast.errors import Rollback

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
    "TICK",
    "UNKNOWN",
    "Alert",
    "Approve",
    "AsyncEffect",
    "AsyncFlow",
    "AsyncStep",
    "Budget",
    "Done",
    "Effect",
    "Entry",
    "Fail",
    "Finding",
    "Flow",
    "Handle",
    "Memory",
    "NotDone",
    "ObservedAttempt",
    "ObservedCut",
    "ObservedEntry",
    "ObservedPast",
    "ObservedRun",
    "Observer",
    "Preflight",
    "Price",
    "Queue",
    "Retry",
    "Rollback",
    "Schedule",
    "Secret",
    "Status",
    "Step",
    "Store",
    "Unknown",
    "Watch",
    "adapters",
    "aio",
    "alert",
    "ask",
    "attempt",
    "call",
    "connection",
    "context",
    "current_run",
    "each",
    "effect",
    "emit",
    "errors",
    "file",
    "fingerprint",
    "flow",
    "gather",
    "idempotency_key",
    "keyed",
    "last_progress",
    "mask_record",
    "masked",
    "memory",
    "new_id",
    "now",
    "observe",
    "observers",
    "patched",
    "plan",
    "prices",
    "pricing",
    "progress",
    "recorded",
    "redaction",
    "register",
    "replaying",
    "rng",
    "run",
    "schedule",
    "schedules",
    "secret",
    "sleep",
    "step",
    "stream",
    "turns",
    "types",
    "usage",
    "use",
    "versioning",
    "wait",
    "watch",
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
