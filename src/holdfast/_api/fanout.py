"""Fan-out: `gather`, `each` and `run_step` for parallel branches.

The functions are sync; their awaited twins have the prefix aio_.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, Literal, ParamSpec, TypeVar, cast, overload

from holdfast._api import branch_execution
from holdfast._api.decorators import inline_step
from holdfast._api.steps import Step
from holdfast._engine.journal.step_keys import check_name
from holdfast._runtime.execution.frames import current
from holdfast.errors import UsageError

A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
Call = Callable[[], T]


@overload
def gather(a: Call[A], /) -> tuple[A]: ...
@overload
def gather(a: Call[A], b: Call[B], /) -> tuple[A, B]: ...
@overload
def gather(a: Call[A], b: Call[B], c: Call[C], /) -> tuple[A, B, C]: ...
@overload
def gather(a: Call[A], b: Call[B], c: Call[C], d: Call[D], /) -> tuple[A, B, C, D]: ...
@overload
def gather(
    a: Call[A], b: Call[B], c: Call[C], d: Call[D], e: Call[E], /
) -> tuple[A, B, C, D, E]: ...
@overload
def gather(
    a: Call[T], b: Call[T], c: Call[T], d: Call[T], e: Call[T], f: Call[T], /, *more: Call[T]
) -> tuple[T, ...]: ...
def gather(*calls: Callable[[], Any]) -> tuple[Any, ...]:
    """Run several calls at once, each in a branch of its own; returns their results in order."""
    frame = branch_execution.fan_out("gather", awaits=False)
    branches = branch_execution.branches_of_calls(frame, calls)
    branch_execution.run_threads(frame, branches, branch_execution.AT_ONCE_MAX)
    return tuple(branch_execution.results(branches, collect=False))


@overload
async def aio_gather(a: Awaitable[A], /) -> tuple[A]: ...
@overload
async def aio_gather(a: Awaitable[A], b: Awaitable[B], /) -> tuple[A, B]: ...
@overload
async def aio_gather(a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], /) -> tuple[A, B, C]: ...
@overload
async def aio_gather(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], /
) -> tuple[A, B, C, D]: ...
@overload
async def aio_gather(
    a: Awaitable[A], b: Awaitable[B], c: Awaitable[C], d: Awaitable[D], e: Awaitable[E], /
) -> tuple[A, B, C, D, E]: ...
@overload
async def aio_gather(
    a: Awaitable[T],
    b: Awaitable[T],
    c: Awaitable[T],
    d: Awaitable[T],
    e: Awaitable[T],
    f: Awaitable[T],
    /,
    *more: Awaitable[T],
) -> tuple[T, ...]: ...
async def aio_gather(*awaitables: Awaitable[Any]) -> tuple[Any, ...]:
    """Await several at once, each in a branch of its own; returns their results in order."""
    frame = branch_execution.fan_out("gather", awaits=True)
    branches = branch_execution.branches_of_awaitables(frame, awaitables)
    await branch_execution.run_tasks(frame, branches, None)
    return tuple(branch_execution.results(branches, collect=False))


@overload
def each(
    fn: Callable[[T], R],
    items: Iterable[T],
    *,
    max_concurrency: int | None = None,
    key: Callable[[T], str] | None = None,
    failures: Literal["raise"] = "raise",
) -> list[R]: ...
@overload
def each(
    fn: Callable[[T], R],
    items: Iterable[T],
    *,
    max_concurrency: int | None = None,
    key: Callable[[T], str] | None = None,
    failures: Literal["collect"],
) -> list[R | Exception]: ...
def each(
    fn: Callable[[T], Any],
    items: Iterable[T],
    *,
    max_concurrency: int | None = None,
    key: Callable[[T], str] | None = None,
    failures: str = "raise",
) -> list[Any]:
    """Call a function for each item, several at once; returns the results in the items' order.

    With `failures="collect"` an item that failed has its exception in the place of its result.
    """
    collect = branch_execution.check_failures(failures)
    frame = branch_execution.fan_out("each", awaits=False)
    branches = branch_execution.branches_of_items(frame, fn, items, key)
    branch_execution.run_threads(
        frame, branches, _checked(max_concurrency) or branch_execution.AT_ONCE_MAX
    )
    return branch_execution.results(branches, collect=collect)


@overload
async def aio_each(
    fn: Callable[[T], Coroutine[Any, Any, R]],
    items: Iterable[T],
    *,
    max_concurrency: int | None = None,
    key: Callable[[T], str] | None = None,
    failures: Literal["raise"] = "raise",
) -> list[R]: ...
@overload
async def aio_each(
    fn: Callable[[T], Coroutine[Any, Any, R]],
    items: Iterable[T],
    *,
    max_concurrency: int | None = None,
    key: Callable[[T], str] | None = None,
    failures: Literal["collect"],
) -> list[R | Exception]: ...
async def aio_each(
    fn: Callable[[T], Any],
    items: Iterable[T],
    *,
    max_concurrency: int | None = None,
    key: Callable[[T], str] | None = None,
    failures: str = "raise",
) -> list[Any]:
    """Call an async function for each item, several at once; the awaited twin of `each`."""
    collect = branch_execution.check_failures(failures)
    frame = branch_execution.fan_out("each", awaits=True)
    branches = branch_execution.branches_of_items(frame, fn, items, key)
    await branch_execution.run_tasks(frame, branches, _checked(max_concurrency))
    return branch_execution.results(branches, collect=collect)


def _checked(limit: int | None) -> int | None:
    if limit is not None and (not isinstance(limit, int) or limit < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"each(…, max_concurrency={limit!r}): a positive number")
    return limit


def run_step(name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Record one inline call, of any function or bound method, under a name."""
    check_name("step", name)
    if inspect.iscoroutinefunction(fn):
        raise UsageError(
            f"run_step({name!r}, …) of an async function: `await holdfast.aio.run_step(…)`"
        )
    if current.get() is None:
        return fn(*args, **kwargs)
    return cast("R", inline_step(name, _plain(fn), awaits=False)(*args, **kwargs))


@overload
def aio_run_step(
    name: str, fn: Callable[P, Coroutine[Any, Any, R]], /, *args: P.args, **kwargs: P.kwargs
) -> Coroutine[Any, Any, R]: ...
@overload
def aio_run_step(
    name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs
) -> Coroutine[Any, Any, R]: ...
def aio_run_step(name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Record one inline call in an async flow; a sync function runs in a thread."""
    check_name("step", name)
    awaits = inspect.iscoroutinefunction(fn)
    if current.get() is None:
        return fn(*args, **kwargs) if awaits else _in_thread(fn, args, kwargs)
    step = inline_step(name, _plain(fn), awaits=awaits)
    return step.aio(*args, **kwargs) if isinstance(step, Step) else step(*args, **kwargs)


async def _in_thread(fn: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    import asyncio

    return await asyncio.to_thread(fn, *args, **kwargs)


def _plain(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that a step can be made of: built-ins and callables get a cover."""
    if inspect.isfunction(fn):
        return fn

    async def awaited(*args: Any, **kwargs: Any) -> Any:
        return await fn(*args, **kwargs)

    def called(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return awaited if inspect.iscoroutinefunction(fn) else called
