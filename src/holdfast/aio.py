"""The awaited twins: what waits inside an async flow."""

from __future__ import annotations

from holdfast._runtime.asking import aio_ask as ask
from holdfast._runtime.blocks import aio_run as run
from holdfast._runtime.fanout import (
    aio_each as each,
    aio_gather as gather,
    aio_run_step as run_step,
)
from holdfast._runtime.loops import aio_turns as turns
from holdfast._runtime.memory import aio_memory as memory
from holdfast._runtime.timing import aio_sleep as sleep, aio_wait_for_signal as wait_for_signal
from holdfast._runtime.watching import aio_depends_on as depends_on

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
