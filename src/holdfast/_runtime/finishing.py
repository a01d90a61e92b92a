"""How an execution begins and ends for its caller: admitted, executed, written down, left."""

from __future__ import annotations

import functools
from typing import Any

import msgspec

from holdfast._core.children import to_parent
from holdfast._core.lifecycle import CLAIMABLE
from holdfast._core.rollback import RollBack, Wanted
from holdfast._core.rows import Message, Post
from holdfast._runtime import ending, mail, observing
from holdfast._runtime.admission import Ended, RunRequest, admit
from holdfast._runtime.engine import Engine
from holdfast._runtime.execution import Execution
from holdfast._runtime.handle import outcome
from holdfast._runtime.inbox import absorb
from holdfast._runtime.shield import Shield
from holdfast.errors import HoldfastError, RunBusy, RunCancelled, RunHeld, RunRolledBack


def finish(execution: Execution, end: ending.Ending) -> Any:
    """Write the end of an execution, then return or raise what comes out of it."""
    if end.rollback is not None:
        from holdfast._runtime.rollback import roll_back

        end = roll_back(execution, end.rollback)
    with Shield():
        try:
            if end.drafts:
                ticket = execution.write(
                    end.drafts, None, end.changes, took=end.took, posts=_news(execution, end)
                )
                execution.engine.committer.wait(ticket)
                execution.settled(ticket)
        except BaseException as error:
            _left(execution)
            if end.error is None or isinstance(end.error, RunRolledBack):
                raise getattr(error, "error", error) from None
        finally:
            execution.engine.leave(execution)
        if end.held or end.asked:
            absorb(execution.engine, execution.run_id)
    if end.error is not None:
        raise _as_it_is(execution, end.error) if end.asked else end.error
    return end.value


def _as_it_is(execution: Execution, error: BaseException) -> BaseException:
    """Return what became of a run that was asked to stop."""
    engine = execution.engine
    row = engine.kept.get(execution.run_id)
    if row is None or row.status in CLAIMABLE:
        return error
    try:
        outcome(engine, row)
    except HoldfastError as told:
        return told
    return error


def _news(execution: Execution, end: ending.Ending) -> list[Post]:
    """Return what the end of this run says to the run that started it."""
    return to_parent(execution.lease.row, end.drafts, execution.engine.now_us())


def _left(execution: Execution) -> None:
    """The last write failed: unless another owner has the run, it is still to be given back."""
    if not execution.fenced:
        execution.engine.abandon(execution.lease)


async def admit_async(engine: Engine, request: RunRequest) -> Execution | Ended:
    """Admit in a thread; a cancellation meanwhile gives a claimed run back."""
    import asyncio

    loop = asyncio.get_running_loop()
    work = observing.here(functools.partial(admit, engine, request))
    future = loop.run_in_executor(engine.threads(), work)
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError as cancelled:
        admitted = await future
        if isinstance(admitted, Execution):
            await finish_async(admitted, ending.raised(admitted, cancelled))
        raise


def admit_or_none(engine: Engine, request: RunRequest) -> Execution | None:
    """Admit a run that is to work in the background; None if it works elsewhere, or not now."""
    try:
        admitted = admit(engine, request)
    except (RunBusy, RunCancelled, RunHeld, RunRolledBack):
        return None  # The handle tells.
    return admitted if isinstance(admitted, Execution) else None


async def finish_async(execution: Execution, end: ending.Ending) -> Any:
    """Write the end of an execution, then return or raise what comes out of it."""
    cancelled: BaseException | None = None
    if end.rollback is not None:
        from holdfast._runtime.rollback import roll_back_async

        end = await roll_back_async(execution, end.rollback)
    try:
        if end.drafts:
            cancelled = await _written(execution, end)
    except BaseException as error:
        _left(execution)
        if end.error is None or isinstance(end.error, RunRolledBack):
            raise getattr(error, "error", error) from None
    finally:
        execution.engine.leave(execution)
    if end.held or end.asked:
        absorb(execution.engine, execution.run_id)
    if end.error is not None:
        raise _as_it_is(execution, end.error) if end.asked else end.error
    if cancelled is not None:
        raise cancelled
    return end.value


async def _written(execution: Execution, end: ending.Ending) -> BaseException | None:
    """Write the end; a cancellation meanwhile is returned when the write is through."""
    import asyncio

    from holdfast._runtime.awaiting import written

    wake = execution.engine.wakes(asyncio.get_running_loop())
    ticket = execution.write(
        end.drafts, wake, end.changes, took=end.took, posts=_news(execution, end)
    )
    cancelled = await written(ticket)
    execution.settled(ticket)
    return cancelled


def _asked_to_roll_back(execution: Execution, message: Message) -> None:
    """Stop a run at work, because somebody wants what it did undone."""
    if execution.history.rollback is None:
        wanted = msgspec.json.decode(message.body, type=Wanted)
        execution.stop(RollBack(execution.run_id, wanted, [message.message_id]), later=True)


mail.handlers["rollback"] = _asked_to_roll_back
