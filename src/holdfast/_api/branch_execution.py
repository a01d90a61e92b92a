"""Parallel branches: `gather` and `each`, in threads for sync flows and tasks for async ones.

Every started branch finishes, then the first failure in branch order is raised: no sibling's effect
is interrupted. Each branch has a scope of its own, so its keys do not depend on which branch is faster.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from holdfast._api.steps import Step
from holdfast._engine.journal.step_keys import Scope, quoted
from holdfast._engine.scripts.stops import Unwind
from holdfast._runtime.clocks import Thread
from holdfast._runtime.engine import LIMITS, no_thread
from holdfast._runtime.execution.attempt import INTERRUPTS
from holdfast._runtime.execution.frames import Frame, check_owner, current, here, in_flow
from holdfast._runtime.interrupt_shield import InterruptsLast
from holdfast.errors import RunError, UsageError

T = TypeVar("T")

AT_ONCE_MAX = 32
"""Threads that a sync fan-out uses when `max_concurrency=` does not say."""


class Branch:
    """One branch and what became of it."""

    __slots__ = ("error", "scope", "value", "work")

    def __init__(self, scope: Scope, work: Callable[[], Any]) -> None:
        self.scope = scope
        self.work = work
        self.value: Any = None
        self.error: BaseException | None = None


def fan_out(what: str, *, awaits: bool) -> Frame:
    """Return the flow's frame, or say why branches cannot be opened here."""
    frame = in_flow(what)
    if frame.awaits != awaits:
        other = f"await holdfast.aio.{what}(…)" if frame.awaits else f"holdfast.{what}(…)"
        raise UsageError(f"{what} does not fit this flow; write `{other}`")
    check_owner(frame, what)
    frame.execution.check()
    return frame


def run_threads(frame: Frame, branches: Sequence[Branch], at_once: int) -> None:
    """Run branches in threads, at most so many at once, until all have finished."""
    waiting = list(reversed(branches))
    ended = [threading.Event() for _ in range(min(at_once, len(branches)))]

    waits = frame.execution.waits

    def work(done: threading.Event) -> None:
        try:
            while True:
                try:
                    branch = waiting.pop()
                except IndexError:
                    return
                contextvars.copy_context().run(_in_thread, frame, branch)
        finally:
            fan.ended()
            done.set()

    threads = [
        Thread(
            target=contextvars.copy_context().run,
            args=(work, done),
            name=f"holdfast-{frame.execution.run_id}-{number}",
        )
        for number, done in enumerate(ended)
    ]
    fan = waits.fan_out(len(threads), len(threads))
    started = 0
    # An interrupt between the start of a thread and the wait for it must not leave it behind.
    with InterruptsLast():
        try:
            for thread in threads:
                thread.start()
                started += 1
        except RuntimeError as error:
            # Fewer threads will not do: one branch may wait for what another one does.
            stop = _without_thread(frame, error)
            waiting.clear()
            for _ in threads[started:]:
                fan.ended()
            _wait_for_all(ended[:started])
            raise stop from error
        _wait_for_all(ended)


def _without_thread(frame: Frame, error: RuntimeError) -> Unwind:
    """Stop a run for whose branches no thread can be started: it is given back. Those that are at
    work end at their next durable call."""
    execution = frame.execution
    told = f"run {execution.run_id!r} was released: {no_thread(error)}. {LIMITS}"
    why = RunError(execution.run_id, told)
    return execution.stop(Unwind(why, released="no thread could be started"))


def _wait_for_all(ended: Sequence[threading.Event]) -> None:
    """Wait for all branches.

    Not by `Thread.join`: one that was interrupted takes a thread for dead that is at work.
    """
    for done in ended:
        done.wait()


def _in_thread(frame: Frame, branch: Branch) -> None:
    current.set(Frame(frame.execution, branch.scope, here(awaits=False), awaits=False))
    try:
        frame.execution.check()
        branch.value = branch.work()
    except BaseException as error:
        branch.error = error


async def run_tasks(frame: Frame, branches: Sequence[Branch], at_once: int | None) -> None:
    """Run branches in tasks, at most so many at once, until all have finished."""
    import asyncio

    slots = asyncio.Semaphore(at_once or len(branches) or 1)
    waits = frame.execution.waits

    async def work(branch: Branch) -> None:
        async with slots:
            task = asyncio.current_task()
            current.set(Frame(frame.execution, branch.scope, task, awaits=True))
            try:
                frame.execution.check()
                branch.value = await branch.work()
            except BaseException as error:
                branch.error = error

    fan = waits.fan_out(len(branches), at_once or len(branches) or 1)
    tasks = [asyncio.ensure_future(work(branch)) for branch in branches]
    for task in tasks:
        task.add_done_callback(lambda _task: fan.ended())
    cancelled: asyncio.CancelledError | None = None
    while not all(task.done() for task in tasks):
        try:
            await asyncio.wait(tasks)
        except asyncio.CancelledError as error:
            # From outside: the run is given back. Effects at work still record their outcome.
            cancelled = error
            for task in tasks:
                task.cancel()
    if cancelled is not None:
        _close(branches)
        raise cancelled


def _close(branches: Sequence[Branch]) -> None:
    for branch in branches:
        close = getattr(branch.work, "close", None)
        if close is not None:
            close()


def results(branches: Sequence[Branch], *, collect: bool) -> list[Any]:
    """Return the values, or raise: a stop first, then the first failure in branch order."""
    errors = [branch.error for branch in branches if branch.error is not None]
    for error in errors:
        if isinstance(error, (Unwind, *INTERRUPTS)):
            raise error
    if collect:
        return [branch.value if branch.error is None else branch.error for branch in branches]
    if errors:
        BaseException.__setattr__(errors[0], "__holdfast_beside__", tuple(errors[1:]))
        raise errors[0]
    return [branch.value for branch in branches]


def branches_of_calls(frame: Frame, calls: Sequence[Callable[[], Any]]) -> list[Branch]:
    """Return the branches of a `gather` over callables."""
    for call in calls:
        if not callable(call):
            raise UsageError(
                f"gather takes functions without arguments, such as `lambda: search(topic)`, "
                f"not {type(call).__name__}"
            )
    from holdfast._runtime.execution import branch_marks  # Only flows with branches need it.

    key, position = frame.scope.take("gather")
    marks = branch_marks.of_calls(frame.execution, key, calls)
    numbers = branch_marks.placed(frame, "gather", (key, position), marks)
    return [
        Branch(Scope(f"{key}[{number}]"), call) for number, call in zip(numbers, calls, strict=True)
    ]


class Pending:
    """An awaitable handed to `aio.gather`, as a branch's work."""

    __slots__ = ("awaitable",)

    def __init__(self, awaitable: Awaitable[Any]) -> None:
        self.awaitable = awaitable

    def __call__(self) -> Awaitable[Any]:
        return self.awaitable

    def close(self) -> None:
        """Close a coroutine that was never awaited."""
        close = getattr(self.awaitable, "close", None)
        if close is not None:
            close()


def branches_of_awaitables(frame: Frame, awaitables: Sequence[Awaitable[Any]]) -> list[Branch]:
    """Return the branches of an `aio.gather`."""
    import inspect

    for awaitable in awaitables:
        if not inspect.isawaitable(awaitable):
            raise UsageError(
                f"aio.gather takes awaitables, such as `think(x)` of an async step, "
                f"not {type(awaitable).__name__}"
            )
    from holdfast._runtime.execution import branch_marks  # Only flows with branches need it.

    key, position = frame.scope.take("gather")
    marks = branch_marks.of_awaitables(frame.execution, key, awaitables)
    pending = list(map(Pending, awaitables))
    try:
        numbers = branch_marks.placed(frame, "gather", (key, position), marks)
    except BaseException:
        for one in pending:
            one.close()
        raise
    return [
        Branch(Scope(f"{key}[{number}]"), one) for number, one in zip(numbers, pending, strict=True)
    ]


def branches_of_items(
    frame: Frame,
    fn: Any,
    items: Iterable[Any],
    key: Callable[[Any], str] | None,
) -> list[Branch]:
    """Return the branches of an `each`; `key` names them by item instead of by number."""
    if not callable(fn):
        raise UsageError(
            f"each({fn!r}, …): the first argument is the function to call for each item"
        )
    if not isinstance(items, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(f"each(…, {items!r}): the second argument is a list, or another iterable")
    from holdfast._runtime.execution import branch_marks

    # The place first: items may come from a generator that calls steps.
    each_key, position = frame.scope.take("each")
    given = list(items)
    work = fn.aio if frame.awaits and isinstance(fn, Step) else fn
    if key is not None:
        names = [quoted(str(key(item))) for item in given]
        _check_apart(names)
        branch_marks.placed(frame, "each", (each_key, position), branch_marks.Marks(keyed=True))
    else:
        marks = branch_marks.of_items(frame.execution, each_key, fn, given)
        names = list(map(str, branch_marks.placed(frame, "each", (each_key, position), marks)))
    return [
        Branch(Scope(f"{each_key}[{name}]"), _bound(work, item))
        for name, item in zip(names, given, strict=True)
    ]


def _check_apart(names: Sequence[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise UsageError(f"each(…, key=…): two items have the key {name!r}")
        seen.add(name)


def _bound(fn: Callable[[Any], Any], item: Any) -> Callable[[], Any]:
    return lambda: fn(item)


def check_failures(failures: str) -> bool:
    """Return whether failures are collected instead of raised."""
    if failures not in ("raise", "collect"):
        raise UsageError(f'each(…, failures={failures!r}): "raise" or "collect"')
    return failures == "collect"
