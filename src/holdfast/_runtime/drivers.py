"""The two drivers: they perform what a script asks for, one blocking, one awaiting.

Nothing is decided here. A script that stops the run (`Unwind`) marks its execution, so that
every branch and every later call hears of it. What interrupts from outside (Ctrl-C, exit,
cancellation) is recorded for what it is: a plain step is cancelled, an effect is in doubt.
"""

from __future__ import annotations

from typing import Any

from holdfast._core.attempts import key_change
from holdfast._core.entries import Kind
from holdfast._core.requests import (
    Append,
    Call,
    Chance,
    CopyResult,
    FindKey,
    Note,
    Now,
    Script,
    Sleep,
    StepCall,
    Wrote,
)
from holdfast._core.stops import Unwind
from holdfast._runtime import attempt
from holdfast._runtime.attempt import Body, Interrupted
from holdfast._runtime.clock import CHANCE
from holdfast._runtime.committer import Ticket
from holdfast._runtime.execution import Execution
from holdfast._runtime.shield import Shield
from holdfast._store.contract import KeyTaken
from holdfast.errors import StoreError, ValueRefused

KEY_POLL_S = 0.5
"""Another run's key is looked at this often, if no push comes earlier."""


# -- blocking --------------------------------------------------------------------------------


def drive(script: Script, execution: Execution, body: Body) -> Any:
    """Perform a script in this thread."""
    with Shield() as shield:
        try:
            return _drive(script, execution, body, shield)
        except Unwind as unwind:
            raise execution.stop(unwind) from None
        except attempt.INTERRUPTS as interrupt:
            _note_interrupt(execution, body.call, interrupt)
            raise
        except StoreError as error:
            raise execution.stop(Unwind(error)) from error


def _drive(script: Script, execution: Execution, body: Body, shield: Shield) -> Any:
    answer: Any = None
    refused: ValueRefused | None = None
    try:
        while True:
            request = script.send(answer) if refused is None else script.throw(refused)
            answer = refused = None
            kind = type(request)
            if kind is Now:
                answer = execution.engine.now_us()
            elif kind is Append:
                try:
                    answer = _append(execution, request)  # type: ignore[arg-type]
                except ValueRefused as error:
                    refused = error
            elif kind is Call:
                execution.open_calls[body.call.key] = body.call
                shield.lower()
                answer = attempt.call_blocking(execution, body, request.what)  # type: ignore[union-attr]
                shield.raise_again()
            else:
                shield.lower()
                answer = _perform(execution, request)
                shield.raise_again()
    except StopIteration as stop:
        return stop.value


def _append(execution: Execution, request: Append) -> Wrote:
    if not request.waits:
        _, copy = execution.append(request, execution.in_background)
        return Wrote(copy)
    ticket, copy = execution.append(request, None)
    _wait(execution, ticket)
    return _wrote(execution, ticket, copy)


def _wait(execution: Execution, ticket: Ticket) -> None:
    try:
        execution.engine.committer.wait(ticket)
    except BaseException:
        if not ticket.done:
            raise


def _wrote(execution: Execution, ticket: Ticket, copy: Any) -> Wrote:
    outcome = execution.settled(ticket)
    if isinstance(outcome, KeyTaken):
        execution.undo_prediction(ticket)
        return Wrote(taken=outcome.key)
    return Wrote(copy)


def _perform(execution: Execution, request: Any) -> Any:
    """Perform the requests that are rare."""
    engine = execution.engine
    if isinstance(request, Chance):
        return CHANCE.random()
    if isinstance(request, CopyResult):
        return engine.result_of(request.key)
    if isinstance(request, Sleep):
        pause_s = (request.until_us - engine.now_us()) / 1e6
        if pause_s > 0 and engine.clock.wait(execution.interrupted, pause_s):
            execution.check()
        return None
    assert isinstance(request, FindKey)
    if request.wait:
        execution.check()
        engine.kept.wait_for_change(KEY_POLL_S)
        execution.check()
    return None


def _note_interrupt(execution: Execution, call: StepCall, interrupt: BaseException) -> None:
    """Write down that a call was interrupted: an effect is in doubt, a plain step is not done."""
    if call.key not in execution.open_calls or execution.fenced:
        return
    execution.append(_interrupted(call, interrupt), execution.in_background)
    execution.open_calls.pop(call.key, None)


def _interrupted(call: StepCall, interrupt: BaseException) -> Append:
    facts = {"why": "interrupted", "by": type(interrupt).__name__}
    if not call.begun:
        note = Note(Kind.STEP_CANCELLED, {**facts, "begun": False})
        return Append(call, [note], keys=key_change(call, "not_done"))
    if call.spec.effect:
        note = Note(Kind.STEP_IN_DOUBT, {**facts, "ended": True})
        return Append(call, [note], keys=key_change(call, "in_doubt"))
    return Append(call, [Note(Kind.STEP_CANCELLED, facts)])


# -- awaiting --------------------------------------------------------------------------------


async def drive_async(script: Script, execution: Execution, body: Body) -> Any:
    """Perform a script in the running event loop."""
    import asyncio

    try:
        return await _drive_async(script, execution, body)
    except Unwind as unwind:
        raise execution.stop(unwind) from None
    except (*attempt.INTERRUPTS, asyncio.CancelledError) as interrupt:
        _note_interrupt(execution, body.call, interrupt)
        raise
    except StoreError as error:
        raise execution.stop(Unwind(error)) from error


async def _drive_async(script: Script, execution: Execution, body: Body) -> Any:
    import asyncio

    answer: Any = None
    refused: ValueRefused | None = None
    cancelled: BaseException | None = None
    try:
        while True:
            request = script.send(answer) if refused is None else script.throw(refused)
            answer = refused = None
            kind = type(request)
            if kind is Now:
                answer = execution.engine.now_us()
            elif kind is Append:
                try:
                    answer, late = await _append_async(execution, request)  # type: ignore[arg-type]
                    cancelled = cancelled or late
                except ValueRefused as error:
                    refused = error
            elif kind is Call:
                execution.open_calls[body.call.key] = body.call
                if cancelled is not None:
                    raise cancelled
                try:
                    answer = await attempt.call_awaiting(execution, body, request.what)  # type: ignore[union-attr]
                except Interrupted as interrupted:
                    answer, cancelled = interrupted.called, asyncio.CancelledError()
            else:
                if cancelled is not None:
                    raise cancelled
                answer = await _perform_async(execution, request)
    except StopIteration as stop:
        if cancelled is not None:
            raise cancelled from None
        return stop.value


async def _append_async(
    execution: Execution, request: Append
) -> tuple[Wrote, BaseException | None]:
    """Write and wait; a cancellation meanwhile is returned, not raised: the write goes on."""
    import asyncio

    if not request.waits:
        _, copy = execution.append(request, execution.in_background)
        return Wrote(copy), None
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    ticket, copy = execution.append(request, execution.engine.wakes(loop, future))
    cancelled: BaseException | None = None
    while not ticket.done:
        try:
            await asyncio.shield(future)
        except asyncio.CancelledError as error:
            cancelled = error
    return _wrote(execution, ticket, copy), cancelled


async def _perform_async(execution: Execution, request: Any) -> Any:
    engine = execution.engine
    if isinstance(request, Sleep):
        await sleep_async(execution, request.until_us)
        return None
    if isinstance(request, FindKey):
        execution.check()
        await engine.clock.wait_async(KEY_POLL_S / 10)
        execution.check()
        return None
    return _perform(execution, request)


async def sleep_async(execution: Execution, until_us: int, slice_s: float = 0.2) -> None:
    """Sleep, in slices, so that a run that stops meanwhile is noticed."""
    while True:
        left_s = (until_us - execution.engine.now_us()) / 1e6
        if left_s <= 0:
            return
        await execution.engine.clock.wait_async(min(left_s, slice_s))
        execution.check()
