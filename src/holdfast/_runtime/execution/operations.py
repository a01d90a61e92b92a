"""How an operation that is no step is performed: it has a place in the flow, and a script."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.step_record import SCOPE, Record
from holdfast._engine.scripts.requests import Script, Spec, StepCall
from holdfast._engine.scripts.step_script import find
from holdfast._engine.scripts.stops import Unwind
from holdfast._runtime.execution import key_override
from holdfast._runtime.execution.attempt import Body
from holdfast._runtime.execution.blocking_driver import drive
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.frames import Frame, check_owner, in_flow
from holdfast.errors import ClassChanged, UsageError


def called(what: str, name: str, *, awaits: bool, instead: str | None = None) -> Frame:
    """Return the frame of an operation that flow code calls, or say what to write instead."""
    frame = in_flow(f"holdfast.{what}" if instead is None else what)
    step_key = key_override.current_key()
    fits = key_override.awaits_here(frame, step_key)
    if fits != awaits:
        other = f"await holdfast.aio.{what}" if fits else f"holdfast.{what}"
        colour = "an async" if fits else "a sync"
        raise UsageError(f"{name} does not fit {colour} flow; write `{instead or other}`")
    if step_key is None:
        check_owner(frame, name)
    frame.execution.check()
    return frame


def place(frame: Frame, name: str) -> StepCall:
    """Take the next place in the flow for an operation of this name."""
    key, position = key_override.take(frame, name, key_override.current_key())
    call = StepCall(Spec(name), key, position, None, "", None)
    # It has no arguments of its own to be written, and no attempts.
    call.attempt.number, call.attempt.noted = 1, True
    execution = frame.execution
    if execution.history.match_quietly(key, position) is not None:
        with execution.lock:
            execution.replay.consumed.add(key)
            record = execution.history.records.get(key)
            if record is not None and record.has_outcome:
                execution.replay.unreplayed -= 1
    return call


def recorded_at(frame: Frame, call: StepCall, sort: str) -> Record | None:
    try:
        return find(call, frame.execution.history, frame.execution.decode, sort)
    except Unwind as unwind:
        raise frame.execution.stop(unwind) from None
    except ClassChanged as changed:
        raise frame.execution.class_changed(changed, call.key) from None


def take_place(frame: Frame, call: StepCall, body: bytes = b"{}") -> Record | None:
    """Take the place of a loop or of branches; returns the record, if it was taken before."""
    execution = frame.execution
    record = recorded_at(frame, call, SCOPE)
    if record is not None:
        execution.replay.replayed(call.key)
    elif not execution.ended:
        at_us = execution.engine.now_us()
        draft = Draft(Kind.SCOPE_OPENED, at_us, call.key, position=call.position, body=body)
        draft.args_digest = call.args_digest
        execution.recorder.write([draft], lazily=True)
    return record


def perform(execution: Execution, call: StepCall, script: Script) -> Any:
    """Perform it in this thread."""
    return drive(script, execution, _body(call))


def perform_async(execution: Execution, call: StepCall, script: Script) -> Coroutine[Any, Any, Any]:
    """Perform it when it is awaited; its place is taken already."""
    execution.waits.unawaited.add(call.key)
    return _awaiting(execution, call, script)


async def _awaiting(execution: Execution, call: StepCall, script: Script) -> Any:
    from holdfast._runtime.execution.awaiting_driver import drive_async

    execution.waits.unawaited.discard(call.key)
    execution.check()
    return await drive_async(script, execution, _body(call))


def _body(call: StepCall) -> Body:
    return Body(call, _nothing, lambda: ((), {}), None, None)


def _nothing() -> None:
    """An operation has no code of users."""
