"""Classes for annotations: what decorators return and what stores and handles give."""

from __future__ import annotations

from holdfast._core.comparing import ResumePreview
from holdfast._core.effects import Failed, NotDone, Unknown
from holdfast._core.findings import Finding
from holdfast._core.lifecycle import HeldReason, Status
from holdfast._opened import Store
from holdfast._operator.read.entry_views import EntryView as Entry
from holdfast._runtime.decorators import AsyncEffect, Effect
from holdfast._runtime.flows import AsyncFlow, Flow
from holdfast._runtime.functions import AsyncStep, Step
from holdfast._runtime.handle import Handle
from holdfast._runtime.memory import Memory
from holdfast._runtime.schedules import Schedule

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
