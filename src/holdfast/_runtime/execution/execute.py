"""How an execution begins and ends for its caller: admitted, executed, written down, left."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from holdfast._engine.journal.lifecycle import CLAIMABLE
from holdfast._engine.scripts.child_run import to_parent
from holdfast._runtime import observer_registry
from holdfast._runtime.commit.committer import Ticket
from holdfast._runtime.commit.task_wakeup import written
from holdfast._runtime.engine import Engine
from holdfast._runtime.execution import run_end
from holdfast._runtime.execution.admission import Ended, RunRequest, admit, outcome
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.inbox import absorb, carried_out, free_if_settled, reach_children
from holdfast._runtime.interrupt_shield import Shield
from holdfast.errors import HoldfastError, RunBusy, RunCancelled, RunHeld, RunRolledBack


def finish(execution: Execution, end: run_end.Ending) -> Any:
    """Write the end of an execution, then return or raise what comes out of it."""
    if end.then is not None:
        end = end.then.perform(execution)
    with Shield():
        try:
            end = carried_out(execution, end)
            if end.drafts:
                ticket = end_write(execution, end, None)
                execution.engine.committer.wait(ticket)
                execution.recorder.settled(ticket)
        except BaseException as error:
            _left(execution)
            if end.error is None or isinstance(end.error, RunRolledBack):
                raise getattr(error, "error", error) from None
        finally:
            execution.engine.leave(execution)
        take_in_rest(execution, end)
    if end.error is not None:
        raise _as_it_is(execution, end.error) if end.asked else end.error
    return end.value


def _as_it_is(execution: Execution, error: BaseException) -> BaseException:
    """Return what became of a run that was asked to stop."""
    engine = execution.engine
    row = engine.backend.get(execution.run_id)
    if row is None or row.status in CLAIMABLE:
        return error
    try:
        outcome(engine, row)
    except HoldfastError as told:
        return told
    return error


def end_write(
    execution: Execution, end: run_end.Ending, callback: Callable[[Ticket], None] | None
) -> Ticket:
    """Queue the last write of an execution."""
    changes = [*end.changes]
    if end.tells_parent:
        changes += to_parent(execution.lease.row, end.drafts, execution.engine.now_us())
    return execution.recorder.write(end.drafts, callback, end.row, changes=changes)


def take_in_rest(execution: Execution, end: run_end.Ending) -> None:
    """Apply the other decisions about a run that was released and goes no further by itself."""
    reach_children(execution.engine, end.changes)
    if end.held or end.asked:
        absorb(execution.engine, execution.run_id)
        free_if_settled(execution.engine, execution.lease.row)


def _left(execution: Execution) -> None:
    """The last write failed: unless another owner has the run, it is still to be given back."""
    if not execution.fenced:
        execution.engine.abandon(execution.lease)


async def admit_async(engine: Engine, request: RunRequest) -> Execution | Ended:
    """Admit in a thread; a cancellation meanwhile gives a claimed run back."""
    import asyncio

    loop = asyncio.get_running_loop()
    work = observer_registry.here(functools.partial(admit, engine, request))
    future = loop.run_in_executor(engine.threads(), work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError as cancelled:
        admitted = await future
        if isinstance(admitted, Execution):
            await finish_async(admitted, run_end.raised(admitted, cancelled))
        raise


def admit_or_none(engine: Engine, request: RunRequest) -> Execution | None:
    """Admit a run that is to work in the background; None if it works elsewhere, or not now."""
    try:
        admitted = admit(engine, request)
    except (RunBusy, RunCancelled, RunHeld, RunRolledBack):
        return None  # The handle tells.
    return admitted if isinstance(admitted, Execution) else None


async def finish_async(execution: Execution, end: run_end.Ending) -> Any:
    """Write the end of an execution, then return or raise what comes out of it."""
    cancelled: BaseException | None = None
    if end.then is not None:
        end = await end.then.perform_async(execution)
    try:
        end, cancelled = await _carried_out(execution, end)
        if end.drafts:
            cancelled = await _written(execution, end) or cancelled
    except BaseException as error:
        _left(execution)
        if end.error is None or isinstance(end.error, RunRolledBack):
            raise getattr(error, "error", error) from None
    finally:
        execution.engine.leave(execution)
    take_in_rest(execution, end)
    if end.error is not None:
        raise _as_it_is(execution, end.error) if end.asked else end.error
    if cancelled is not None:
        raise cancelled
    return end.value


async def _carried_out(
    execution: Execution, end: run_end.Ending
) -> tuple[run_end.Ending, BaseException | None]:
    """Carry out what stops the run in a thread: a long journal may have to be read. A cancellation
    meanwhile is returned when that is through."""
    import asyncio

    if execution.inbox.is_empty:
        return end, None
    work = functools.partial(carried_out, execution, end)
    future = asyncio.get_running_loop().run_in_executor(execution.engine.threads(), work)
    cancelled: BaseException | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    return future.result(), cancelled


async def _written(execution: Execution, end: run_end.Ending) -> BaseException | None:
    """Write the end; a cancellation meanwhile is returned when the write is through."""
    import asyncio

    wake = execution.engine.wakes(asyncio.get_running_loop())
    ticket = end_write(execution, end, wake)
    cancelled = await written(ticket)
    execution.recorder.settled(ticket)
    return cancelled
