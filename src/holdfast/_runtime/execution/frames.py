"""Where a call stands: the frame of the current thread or task.

A frame belongs to one branch of one run, and to the thread or task that executes it. A step body
has a frame of its own, in which `call` is set. No frame means: outside any run.
"""

from __future__ import annotations

import sys
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from holdfast._engine.journal.step_keys import Scope
from holdfast._runtime.execution.branches import Line
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast._engine.scripts.requests import StepCall
    from holdfast._runtime.execution.execution import Execution


class Frame:
    """One branch of a run (or one step body inside it) in one thread or task."""

    __slots__ = ("attempt", "awaits", "call", "execution", "line", "owner", "scope")

    def __init__(
        self,
        execution: Execution,
        scope: Scope,
        owner: object,
        *,
        awaits: bool,
        call: StepCall | None = None,
    ) -> None:
        self.execution = execution
        self.scope = scope
        self.owner = owner
        self.awaits = awaits
        self.call = call
        self.attempt = call.attempt.number if call is not None else 0
        self.line = Line() if call is None else None
        """A step body is no line of its own."""

    def is_here(self) -> bool:
        """Return whether the executing thread or task is the one that the frame belongs to."""
        if self.awaits:
            return self.owner is current_task()
        return self.owner == threading.get_ident()

    def attempt_has_ended(self) -> bool:
        """Return whether this is what an abandoned thread still does of an attempt that is over."""
        call = self.call
        return call is not None and (
            call.attempt.number != self.attempt
            or call.key not in self.execution.recorder.open_calls
        )


current: ContextVar[Frame | None] = ContextVar("holdfast_frame", default=None)
without_places: ContextVar[bool] = ContextVar("holdfast_without_places", default=False)
"""Whether code here is called by a framework that goes on from checkpoints of its own: what came
before them is not repeated, so nothing can be known by its place in the flow."""


def here(*, awaits: bool) -> object:
    """Return what identifies the executing thread or task."""
    return current_task() if awaits else threading.get_ident()


def current_task() -> Any:
    """Return the running asyncio task, or None; never imports asyncio."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return None
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


def in_flow(what: str) -> Frame:
    """Return the frame of flow code, or raise a UsageError that says where `what` belongs."""
    frame = current.get()
    if frame is None:
        raise UsageError(f"{what} is called inside a flow (or a `with holdfast.run(…)` block)")
    if frame.call is not None:
        raise UsageError(f"{what} is called in the flow, not inside the step {frame.call.key}")
    return frame


def in_step(what: str) -> Frame:
    """Return the frame of a step body, or raise a UsageError."""
    frame = current.get()
    if frame is None or frame.call is None:
        raise UsageError(f"{what} is called inside a step or an effect")
    return frame


def check_owner(frame: Frame, what: str) -> None:
    """Refuse a call from a thread or task that the run does not know, or where no place is known."""
    if without_places.get():
        raise UsageError(
            f"{what} is known by its place in the flow, and a framework that goes on from its own "
            f"checkpoints (a node of a graph) has none; call {what} in a flow of its own"
        )
    if not frame.is_here():
        kind, way = (
            ("task", "holdfast.aio.gather or aio.each")
            if frame.awaits
            else (
                "thread",
                "holdfast.each or gather",
            )
        )
        raise UsageError(
            f"{what} was called from a {kind} that run {frame.execution.run_id!r} does not know, "
            f"so its order could not be replayed; use {way}, or give the call a name of its own: "
            f"{what}.with_options(step_key=…)(…); if a framework calls it as a tool, give the agent "
            "Holdfast's adapter (docs/integrations)"
        )
