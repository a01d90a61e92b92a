"""Classes for annotations: what decorators return and what stores and handles give."""

from __future__ import annotations

from holdfast._api.decorators import AsyncEffect, Effect
from holdfast._api.flows import AsyncFlow, Flow
from holdfast._api.handle import Handle
from holdfast._api.opened_store import Store
from holdfast._api.steps import AsyncStep, Step
from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.scripts.doubt_policies import Failed, NotDone, Unknown
from holdfast._features.drift.comparison import ResumePreview
from holdfast._features.memory.runtime import Memory
from holdfast._features.schedules.runtime import Schedule
from holdfast._features.watchdog.model import Finding
from holdfast._operator.read.entry_views import EntryView as Entry

__all__ = [
    "AsyncEffect",
    "AsyncFlow",
    "AsyncStep",
    "Effect",
    "Entry",
    "Failed",
    "Finding",
    "Flow",
    "Handle",
    "HeldReason",
    "Memory",
    "NotDone",
    "ResumePreview",
    "Schedule",
    "Status",
    "Step",
    "Store",
    "Unknown",
]
