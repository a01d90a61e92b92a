"""One attempt in an event loop: async code is awaited, sync code runs in a thread."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any

from holdfast._engine.scripts.requests import Called
from holdfast._engine.scripts.stops import Unwind
from holdfast._runtime import observer_registry
from holdfast._runtime.execution.attempt import INTERRUPTS, Body, call_blocking
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.frames import Frame, current
from holdfast._runtime.resources import Awaitable


async def call_awaiting(execution: Execution, body: Body, what: str) -> Called:
    """Call user code from an async flow: async code is awaited, sync code runs in a thread."""
    target = body.target(what)
    if not (body.awaits if what == "body" else inspect.iscoroutinefunction(target)):
        call = functools.partial(call_blocking, execution, body, what)
        called: Called = await in_thread(execution, call)
        return called
    frame = Frame(execution, execution.root, asyncio.current_task(), awaits=True, call=body.call)
    token = current.set(frame)
    try:
        args, kwargs = body.call_form()
        if body.resources:
            args, kwargs = await _ready(args, kwargs)
        body.call.attempt.begun = True
        body.call.attempt.outcome_changes = None
        with observer_registry.attempt(
            execution.engine, execution.lease.row, body.call, what
        ) as observed:
            called = await _awaited(target(*args, **kwargs), body, what)
            observed.came_to(called.error)
        return called
    except Unwind:
        raise
    except INTERRUPTS:
        raise
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        return Called(error=error)  # Nobody cancelled us: something that the step awaited was.
    except BaseException as error:
        return Called(error=error)
    finally:
        current.reset(token)


async def _awaited(coroutine: Coroutine[Any, Any, Any], body: Body, what: str) -> Called:

    if body.timeout_s is None or what == "fallback":
        return Called(await coroutine)
    limit = asyncio.timeout(body.timeout_s)
    try:
        async with limit:
            return Called(await coroutine)
    except TimeoutError as error:
        if not limit.expired():
            return Called(error=error)
        text = f"{body.call.key} did not end within {body.timeout_s:g} s"
        return Called(error=TimeoutError(text), timed_out=True)


async def in_thread(execution: Execution, work: Callable[[], Any]) -> Any:
    """Run sync code in a thread; a cancelled wait still sees the code through to its end."""
    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    future = loop.run_in_executor(
        execution.engine.threads(),
        lambda: context.run(work),
    )
    interrupt: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            interrupt = error
        except BaseException:  # noqa: S110 - read from the future below
            pass
    if interrupt is not None:
        raise Interrupted(future.result()) from interrupt
    return future.result()


class Interrupted(BaseException):
    """The waiting task was cancelled, but the thread's outcome is known and must be recorded."""

    def __init__(self, outcome: Any) -> None:
        super().__init__("cancelled")
        self.outcome = outcome


async def _ready(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Await resources whose factory is async."""
    done = [await arg.get() if isinstance(arg, Awaitable) else arg for arg in args]
    return tuple(done), {
        name: await arg.get() if isinstance(arg, Awaitable) else arg for name, arg in kwargs.items()
    }
