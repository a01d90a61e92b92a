"""Holdfast: durable runs for AI agents, in Python.

Decorate plain functions with `step`, `effect` and `flow`; `my_flow.run("run-id", …)` starts a run,
or picks it up where it stopped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from holdfast import aio, errors
from holdfast._core.alerts import Alert
from holdfast._core.approvals import Approval
from holdfast._core.budgets import Budget, Price
from holdfast._core.comparing import ResumePreview
from holdfast._core.effects import NOT_DONE, UNKNOWN, Done, Failed, NotDone, Unknown
from holdfast._core.findings import Finding, Watchdog
from holdfast._core.lifecycle import Status
from holdfast._core.masks import masked
from holdfast._core.observing import (
    InterruptedStep,
    ObservedAttempt,
    ObservedEntry,
    ObservedRun,
    Observer,
    PriorExecution,
)
from holdfast._core.retry import Retry
from holdfast._core.secrets import Secret
from holdfast._opened import Store, open as open, stream  # noqa: A004 - the design's name
from holdfast._ops.entries import EntryView as Entry
from holdfast._runtime.alerting import on_alert
from holdfast._runtime.asking import ask
from holdfast._runtime.blocks import run
from holdfast._runtime.decorators import AsyncEffect, Effect, effect, recorded, step
from holdfast._runtime.fanout import each, gather, run_step
from holdfast._runtime.fingerprints import file, fingerprint
from holdfast._runtime.flows import AsyncFlow, Flow, flow
from holdfast._runtime.functions import AsyncStep, Step
from holdfast._runtime.handle import Handle
from holdfast._runtime.keyed import step_key
from holdfast._runtime.loops import turns
from holdfast._runtime.memory import Memory, memory
from holdfast._runtime.observing import observe
from holdfast._runtime.plans import plan
from holdfast._runtime.prices import set_prices
from holdfast._runtime.queues import Queue
from holdfast._runtime.recorded import (
    attempt,
    current_run,
    emit,
    idempotency_key,
    is_replaying,
    load_progress,
    new_id,
    now,
    record_usage,
    rng,
    save_progress,
)
from holdfast._runtime.registry import register_type
from holdfast._runtime.schedules import SCHEDULED_TIME, Schedule, schedule
from holdfast._runtime.secrets import redact_record, register_secret
from holdfast._runtime.signatures import resource
from holdfast._runtime.timing import sleep, wait_for_signal
from holdfast._runtime.transactions import sql_connection
from holdfast._runtime.versions import patched
from holdfast._runtime.watching import depends_on
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
    "SCHEDULED_TIME",
    "UNKNOWN",
    "Alert",
    "Approval",
    "AsyncEffect",
    "AsyncFlow",
    "AsyncStep",
    "Budget",
    "Done",
    "Effect",
    "Entry",
    "Failed",
    "Finding",
    "Flow",
    "Handle",
    "InterruptedStep",
    "Memory",
    "NotDone",
    "ObservedAttempt",
    "ObservedEntry",
    "ObservedRun",
    "Observer",
    "Price",
    "PriorExecution",
    "Queue",
    "ResumePreview",
    "Retry",
    "Rollback",
    "Schedule",
    "Secret",
    "Status",
    "Step",
    "Store",
    "Unknown",
    "Watchdog",
    "adapters",
    "aio",
    "ask",
    "attempt",
    "context",
    "current_run",
    "depends_on",
    "each",
    "effect",
    "emit",
    "errors",
    "file",
    "fingerprint",
    "flow",
    "gather",
    "idempotency_key",
    "is_replaying",
    "load_progress",
    "masked",
    "memory",
    "new_id",
    "now",
    "observe",
    "observers",
    "on_alert",
    "patched",
    "plan",
    "pricing",
    "record_usage",
    "recorded",
    "redact_record",
    "redaction",
    "register_secret",
    "register_type",
    "resource",
    "rng",
    "run",
    "run_step",
    "save_progress",
    "schedule",
    "schedules",
    "set_prices",
    "sleep",
    "sql_connection",
    "step",
    "step_key",
    "stream",
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
