"""One attempt: call user code with its frame, its timeout and its resources.

A sync body with a timeout runs in a helper thread. When the time is over the thread is abandoned: it
cannot be stopped, so the body has not ended, and an effect is in doubt. An async body is cancelled,
and has ended when the cancellation is through.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast._engine.scripts.requests import Called, StepCall
from holdfast._engine.scripts.stops import Unwind
from holdfast._runtime import observer_registry
from holdfast._runtime.clocks import Thread
from holdfast._runtime.execution.frames import Frame, current
from holdfast.errors import RunError, UsageError

if TYPE_CHECKING:
    from holdfast._runtime.execution.execution import Execution

SLICE_S = 0.5
INTERRUPTS = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""Interrupts from outside, which are no failures; asyncio's CancelledError is the fourth."""


class Body:
    """The user code of one call: the body, what is asked in doubt, and the fallback."""

    __slots__ = (
        "arguments",
        "awaits",
        "call",
        "fallback",
        "fn",
        "found",
        "on_doubt",
        "resources",
        "timeout_s",
    )

    def __init__(
        self,
        call: StepCall,
        fn: Callable[..., Any],
        arguments: dict[str, Any] | Callable[[], tuple[tuple[Any, ...], dict[str, Any]]],
        on_doubt: Callable[..., Any] | None,
        fallback: Any,
        *,
        awaits: bool = False,
        resources: bool = False,
        found: Any = None,
    ) -> None:
        self.call = call
        self.fn = fn
        self.arguments = arguments
        """By name as they are bound, or a function that makes args and kwargs of them."""
        self.on_doubt = on_doubt
        self.fallback = fallback
        self.timeout_s = call.spec.timeout_s
        self.awaits = awaits
        self.resources = resources
        self.found = found
        """The record of the call: see `History.look_up`."""

    def call_form(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return args and kwargs of the call."""
        return self.arguments() if callable(self.arguments) else ((), self.arguments)

    def target(self, what: str) -> Callable[..., Any]:
        """Return the function that a script asked to be called."""
        if what in ("body", "look"):
            return self.fn
        if what == "on_doubt":
            assert self.on_doubt is not None
            return self.on_doubt
        if callable(self.fallback):
            function: Callable[..., Any] = self.fallback
            return function
        return lambda *_args, **_kwargs: self.fallback


def call_blocking(execution: Execution, body: Body, what: str) -> Called:
    """Call sync user code in this thread, or in a helper thread if it has a time limit."""
    if body.timeout_s is not None and what != "fallback":
        return _with_limit(execution, body, what, body.timeout_s)
    observed = (
        observer_registry.attempt(execution.engine, execution.lease.row, body.call, what)
        if observer_registry.observers
        else None
    )
    return _called(execution, body, what, observed)


def _called(
    execution: Execution, body: Body, what: str, observed: observer_registry.Unobserved | None
) -> Called:
    """Call user code, and return its value or its error; what stops or interrupts goes on."""
    try:
        return Called(_invoke(execution, body, what, observed))
    except (Unwind, *INTERRUPTS):
        raise
    except BaseException as error:
        return Called(error=error)


def _invoke(
    execution: Execution, body: Body, what: str, observed: observer_registry.Unobserved | None
) -> Any:
    call = body.call
    frame = Frame(execution, execution.root, threading.get_ident(), awaits=False, call=call)
    token = current.set(frame)
    try:
        args, kwargs = body.call_form()
        call.attempt.begun = True
        call.attempt.outcome_changes = None  # What an earlier try asked for was never committed.
        target = body.target(what)  # `testing` watches here which code is called.
        if observed is None:
            result = target(*args, **kwargs)
        else:
            with observed:
                result = target(*args, **kwargs)
    finally:
        current.reset(token)
    if type(result).__name__ == "coroutine":  # Also one of a compiled function.
        result.close()
        raise UsageError(
            f"{body.call.key}: {what} of a sync step returned a coroutine; "
            "make the step async, or the function sync"
        )
    return result


def _with_limit(execution: Execution, body: Body, what: str, timeout_s: float) -> Called:
    box: list[Called | BaseException] = []
    finished = threading.Event()
    context = contextvars.copy_context()
    observed = observer_registry.attempt(execution.engine, execution.lease.row, body.call, what)

    def work() -> None:
        try:
            box.append(context.run(_called, execution, body, what, observed))
        except BaseException as error:
            box.append(error)
        finally:
            body.call.attempt.at_large = False
            finished.set()

    name = f"holdfast-{body.call.key}"
    body.call.attempt.at_large = True
    thread = Thread(target=work, name=name)
    try:
        thread.start()
    except RuntimeError as error:
        body.call.attempt.at_large = False
        why = RunError(
            execution.run_id,
            f"run {execution.run_id!r} was released at step {body.call.key!r}: its time-out needs "
            f"a thread, and this process cannot start one ({error}); run it again",
        )
        raise execution.stop(Unwind(why, released="no thread could be started")) from error
    if not _waited(finished, timeout_s):
        late = TimeoutError(f"{body.call.key} did not end within {timeout_s:g} s")
        if observed.give_up(late):
            execution.engine.at_large.add(thread)
            return Called(error=late, timed_out=True, ended=False)
        finished.wait()  # It has just ended, and observers were notified.
    result = box[0]
    if isinstance(result, BaseException):
        raise result
    return result


def _waited(finished: threading.Event, timeout_s: float) -> bool:
    """Wait in slices: an interrupt that came just before a wait is heard at its end."""
    deadline = time.monotonic() + timeout_s
    while not finished.wait(max(0.0, min(SLICE_S, deadline - time.monotonic()))):
        if time.monotonic() >= deadline:
            return finished.is_set()
    return True
