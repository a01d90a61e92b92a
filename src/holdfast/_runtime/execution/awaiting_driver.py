"""The awaiting driver: performs what a script asks for in the running event loop.

The twin of `drivers`, in a module of its own so that asyncio is loaded only where something is
awaited. A cancellation that comes while an outcome is being written is kept until it is written.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

from holdfast._engine.scripts.requests import (
    Append,
    Await,
    Call,
    FindKey,
    FindUnreplayed,
    Now,
    Poll,
    Script,
    Sleep,
    StartChild,
    StoreRead,
    Transact,
    Wrote,
)
from holdfast._engine.scripts.stops import Unwind
from holdfast._runtime.commit.task_wakeup import written
from holdfast._runtime.execution import attempt, attempt_async, child_execution
from holdfast._runtime.execution.attempt import Body
from holdfast._runtime.execution.attempt_async import Interrupted
from holdfast._runtime.execution.blocking_driver import (
    KEY_POLL_S,
    POLL_S,
    is_stranded,
    key_takes_long,
    note_interrupt,
    perform,
    waits_for_key,
    wrote,
)
from holdfast._runtime.execution.branch_waits import await_async
from holdfast._runtime.execution.effect_repetition import find_unreplayed_async
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.transactional_effects import transact
from holdfast.errors import ClassChanged, NotSerializable, StoreError


async def drive_async(script: Script, execution: Execution, body: Body) -> Any:
    """Perform a script in the running event loop."""
    try:
        return await _drive(script, execution, body)
    except Unwind as unwind:
        raise execution.stop(unwind) from None
    except (*attempt.INTERRUPTS, asyncio.CancelledError) as interrupt:
        note_interrupt(execution, body.call, interrupt)
        raise
    except StoreError as error:
        raise execution.stop(Unwind(error)) from error
    except ClassChanged as changed:
        raise execution.class_changed(changed, body.call.key) from None


async def _drive(script: Script, execution: Execution, body: Body) -> Any:
    answer: Any = None
    refused: NotSerializable | None = None
    cancelled: BaseException | None = None
    try:
        while True:
            request = script.send(answer) if refused is None else script.throw(refused)
            answer = refused = None
            if isinstance(request, Now):
                answer = execution.engine.now_us()
            elif isinstance(request, Append):
                try:
                    answer, late = await _append(execution, request)
                    cancelled = cancelled or late
                except NotSerializable as error:
                    refused = error
            elif isinstance(request, Call):
                if request.what != "look":
                    execution.recorder.open_calls[body.call.key] = body.call
                if cancelled is not None:
                    raise cancelled
                try:
                    answer = await attempt_async.call_awaiting(execution, body, request.what)
                except Interrupted as interrupted:
                    answer, cancelled = interrupted.outcome, asyncio.CancelledError()
            elif isinstance(request, Transact):
                execution.recorder.open_calls[body.call.key] = body.call
                if cancelled is not None:
                    raise cancelled
                work = functools.partial(transact, execution, body, request)
                try:
                    answer = await attempt_async.in_thread(execution, work)
                except Interrupted as interrupted:
                    answer, cancelled = interrupted.outcome, asyncio.CancelledError()
            else:
                if cancelled is not None:
                    raise cancelled
                answer = await _perform(execution, request)
    except StopIteration as stop:
        if cancelled is not None:
            raise cancelled from None
        return stop.value


async def _append(execution: Execution, request: Append) -> tuple[Wrote, BaseException | None]:
    """Write and wait; a cancellation meanwhile is returned, not raised: the write goes on."""
    if not request.waits:
        _, copy = execution.recorder.append(request, execution.recorder.in_background)
        return Wrote(copy), None
    ticket, copy = execution.recorder.append(
        request, execution.engine.wakes(asyncio.get_running_loop())
    )
    cancelled = await written(ticket)
    return wrote(execution, request.call, ticket, copy), cancelled


async def _perform(execution: Execution, request: Any) -> Any:
    engine = execution.engine
    if isinstance(request, Sleep):
        request = Await(request.call, request.until_us)
    if isinstance(request, Await):
        return await await_async(execution, request)
    if isinstance(request, StartChild):
        return await child_execution.begin_async(execution, request.run_id, request.again)
    if isinstance(request, StoreRead):
        work = functools.partial(perform, execution, request)
        return await asyncio.get_running_loop().run_in_executor(engine.threads(), work)
    if isinstance(request, Poll):
        while (found := request.look(engine.now_us())) is None:
            await asyncio.sleep(POLL_S)
            execution.check()
        return found
    if isinstance(request, FindUnreplayed):
        return await find_unreplayed_async(execution, request)
    if isinstance(request, FindKey):
        execution.check()
        await engine.clock.wait_async(KEY_POLL_S)
        execution.check()
        stranded = is_stranded(execution, request.key)
        if not stranded and key_takes_long(execution, request):
            await await_async(execution, waits_for_key(execution, request))
        return stranded
    return perform(execution, request)
