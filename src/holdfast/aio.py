"""The awaited twins: what waits inside an async flow."""

from __future__ import annotations

from holdfast._api.blocks import aio_run as run
from holdfast._api.fanout import (
    aio_each as each,
    aio_gather as gather,
    aio_run_step as run_step,
)
from holdfast._api.loops import aio_turns as turns
from holdfast._api.timers import aio_sleep as sleep, aio_wait_for_signal as wait_for_signal
from holdfast._features.drift.dependencies import aio_depends_on as depends_on
from holdfast._features.memory.runtime import aio_memory as memory
from holdfast._features.questions.runtime import aio_ask as ask

__all__ = [
    "ask",
    "depends_on",
    "each",
    "gather",
    "memory",
    "run",
    "run_step",
    "sleep",
    "turns",
    "wait_for_signal",
]
