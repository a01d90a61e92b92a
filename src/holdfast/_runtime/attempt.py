"""One attempt: user code is called with its frame, its time limit, and its resources.

A sync body with a time limit runs in a helper thread that is abandoned when the time is up: it
cannot be stopped, so it has not ended, and for an effect that is doubt. An async body is
cancelled, and has ended when that is through.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any

from holdfast._core.requests import Called, StepCall
from holdfast._core.stops import Unwind
from holdfast._runtime.frames import Frame, current, here
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast._runtime.execution import Execution

INTERRUPTS = (KeyboardInterrupt, SystemExit, GeneratorExit)
"""What comes from outside and is nobody's failure; asyncio's CancelledError is the fourth."""


class Body:
    """The user code of one call: the body, what is asked in doubt, and the fallback."""

    __slots__ = ("arguments", "call", "fallback", "fn", "on_doubt", "timeout_s")

    def __init__(
        self,
        call: StepCall,
        fn: Callable[..., Any],
        arguments: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]],
        on_doubt: Callable[..., Any] | None,
        fallback: Any,
    ) -> None:
        self.call = call
        self.fn = fn
        self.arguments = arguments
        self.on_doubt = on_doubt
        self.fallback = fallback
        self.timeout_s = call.spec.timeout_s

    def target(self, what: str) -> Callable[..., Any]:
        """Return the function that a script asked to be called."""
        if what == "body":
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
    return _called(lambda: _invoke(execution, body, what))


def _invoke(execution: Execution, body: Body, what: str) -> Any:
    frame = Frame(execution, execution.root, here(awaits=False), awaits=False, call=body.call)
    token = current.set(frame)
    try:
        args, kwargs = body.arguments()
        body.call.begun = True
        result = body.target(what)(*args, **kwargs)
    finally:
        current.reset(token)
    if _is_coroutine(result):
        result.close()
        raise UsageError(
            f"{body.call.key}: {what} of a sync step returned a coroutine; "
            "make the step async, or the function sync"
        )
    return result


def _called(invoke: Callable[[], Any]) -> Called:
    try:
        return Called(invoke())
    except Unwind:
        raise
    except INTERRUPTS:
        raise
    except BaseException as error:
        return Called(error=error)


def _with_limit(execution: Execution, body: Body, what: str, timeout_s: float) -> Called:
    box: list[Called | BaseException] = []
    finished = threading.Event()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            box.append(context.run(_called, lambda: _invoke(execution, body, what)))
        except BaseException as error:
            box.append(error)
        finally:
            finished.set()

    name = f"holdfast-{body.call.key}"
    threading.Thread(target=work, name=name, daemon=True).start()
    if not finished.wait(timeout_s):
        return Called(
            error=TimeoutError(f"{body.call.key} did not end within {timeout_s:g} s"),
            timed_out=True,
            ended=False,
        )
    result = box[0]
    if isinstance(result, BaseException):
        raise result
    return result


async def call_awaiting(execution: Execution, body: Body, what: str) -> Called:
    """Call user code from an async flow: async code is awaited, sync code runs in a thread."""
    import asyncio
    import inspect

    target = body.target(what)
    if not inspect.iscoroutinefunction(target):
        return await _in_thread(execution, body, what)
    frame = Frame(execution, execution.root, asyncio.current_task(), awaits=True, call=body.call)
    token = current.set(frame)
    try:
        args, kwargs = body.arguments()
        args, kwargs = await _ready(args, kwargs)
        body.call.begun = True
        return await _awaited(target(*args, **kwargs), body, what)
    except Unwind:
        raise
    except (*INTERRUPTS, asyncio.CancelledError):
        raise
    except BaseException as error:
        return Called(error=error)
    finally:
        current.reset(token)


async def _awaited(coroutine: Coroutine[Any, Any, Any], body: Body, what: str) -> Called:
    import asyncio

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


async def _in_thread(execution: Execution, body: Body, what: str) -> Called:
    """Run sync code in a thread; a cancelled wait still sees the code through to its end."""
    import asyncio

    context = contextvars.copy_context()
    loop = asyncio.get_running_loop()
    future = loop.run_in_executor(
        execution.engine.threads(),
        lambda: context.run(call_blocking, execution, body, what),
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

    def __init__(self, called: Called) -> None:
        super().__init__("cancelled")
        self.called = called


async def _ready(
    args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Await resources whose factory is async."""
    if not any(map(_is_coroutine, (*args, *kwargs.values()))):
        return args, kwargs
    done = [await arg if _is_coroutine(arg) else arg for arg in args]
    return tuple(done), {
        name: await arg if _is_coroutine(arg) else arg for name, arg in kwargs.items()
    }


def _is_coroutine(value: object) -> bool:
    return type(value).__name__ == "coroutine"
