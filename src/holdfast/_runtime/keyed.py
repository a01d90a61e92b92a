"""`keyed(step_key)`: recorded calls inside it are known by that key, wherever they are made.

A framework calls tools in tasks and threads of its own, in an order that no replay repeats. What it
does give is a name for each call (`tool_call_id`): under that name a call has no position, and is
found again by key and arguments.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator
from contextvars import ContextVar
from typing import TYPE_CHECKING

from holdfast._core.keys import quoted
from holdfast._runtime.frames import Frame, check_owner, current_task

if TYPE_CHECKING:
    from holdfast._core.requests import StepCall
    from holdfast._runtime.execution import Execution

_given: ContextVar[str | None] = ContextVar("holdfast_step_key", default=None)


@contextlib.contextmanager
def keyed(step_key: str) -> Generator[None]:
    """Give the steps, effects and questions inside it this step key: `refund:call_17`.

    They may then be called from any thread or task that carries the context, and take the colour of
    the place: blocking outside event loops, awaited inside them.
    """
    token = _given.set(quoted(step_key))
    try:
        yield
    finally:
        _given.reset(token)


def given() -> str | None:
    """Return the key that recorded calls get here, if there is one."""
    return _given.get()


def awaits_here(frame: Frame, step_key: str | None) -> bool:
    """Say which colour fits: that of the flow, or for a call with a key that of the place."""
    return frame.awaits if step_key is None else current_task() is not None


def take(
    frame: Frame, name: str, step_key: str | None, digest: Callable[[], bytes] | None = None
) -> tuple[str, int | None]:
    """Return the key and the position of a call; one that has a key of its own has no position.

    A step under a key of its own that was cut short, and is called with the same arguments again,
    gets the key that it had: a replay finds the outcome there, and needs no try that came to nothing.
    """
    if step_key is None:
        check_owner(frame, name)
        return frame.scope.take(name)
    execution = frame.execution
    with execution.lock:
        if digest is not None and execution.cut_short:
            before = execution.cut_short.get((frame.scope.whole(f"{name}:{step_key}"), digest()))
            if before:
                return before.pop(0), None
        return frame.scope.take_key(f"{name}:{step_key}"), None


def give_back(execution: Execution, call: StepCall) -> None:
    """A step was cut short and left no outcome: the same call again gets its key."""
    if call.position is None and call.args_digest is not None and not call.spec.effect:
        scope, _, last = call.key.rpartition("/")
        name = last.partition("#")[0]
        with execution.lock:
            place = (f"{scope}/{name}" if scope else name, call.args_digest)
            execution.cut_short.setdefault(place, []).append(call.key)
