"""Rolling a run back: its undos are called instead of its flow, each recorded as an effect.

A run comes here by `raise Rollback(…)` in its flow, by a message, or because its journal says that a
rollback was asked for and has not ended. In all three cases the whole history is read, and what is to
be undone follows from it; so it does not matter who begins it and who goes on.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from holdfast._engine.decisions import control
from holdfast._engine.journal.changes import RUN_ENDS, TakeMessage
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.history import History, Record
from holdfast._engine.journal.lifecycle import ClaimedBecause
from holdfast._engine.journal.rows import Change, Lease, Message, Write
from holdfast._engine.journal.step_keys import name_of
from holdfast._engine.scripts.requests import StepCall
from holdfast._engine.scripts.step_script import step_script
from holdfast._engine.values.redactor import redact_text
from holdfast._features.rollback import model as core
from holdfast._features.rollback.model import Effect, Wanted
from holdfast._features.rollback.undo import Undo, blocking, without_result
from holdfast._runtime import registry
from holdfast._runtime.engine import Engine
from holdfast._runtime.execution import run_end
from holdfast._runtime.execution.attempt import Body
from holdfast._runtime.execution.blocking_driver import drive
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.inbox import absorb
from holdfast._runtime.execution.run_end import Continuation, Ending
from holdfast._runtime.interrupt_shield import Shield
from holdfast._stores.families import open_children
from holdfast.errors import Rollback, RunHeld, RunRolledBack


class RollBack(Continuation):
    """Stops a run that is to be rolled back; without `wanted` that is in its journal already."""

    def __init__(
        self, run_id: str, wanted: Wanted | None = None, took: list[str] | None = None
    ) -> None:
        super().__init__(RunRolledBack(run_id, "" if wanted is None else wanted.reason), took=took)
        self.wanted = wanted

    def perform(self, execution: Execution) -> Ending:
        """Undo what the run did, in this thread; return how the execution ends."""
        return roll_back(execution, self)

    async def perform_async(self, execution: Execution) -> Ending:
        """Undo what the run did, in the running event loop; return how the execution ends."""
        return await roll_back_async(execution, self)


def check(execution: Execution) -> None:
    """Stop a run before its flow is called, if it was taken up only to be rolled back."""
    if execution.history.rollback is not None:
        raise execution.stop(RollBack(execution.run_id))


def pending(admitted: object) -> tuple[Execution, Ending] | None:
    """Return how an execution ends that was admitted only to be rolled back."""
    if not isinstance(admitted, Execution) or admitted.history.rollback is None:
        return None
    return admitted, Ending([], {}, then=RollBack(admitted.run_id))


def roll_back(execution: Execution, asked: RollBack) -> Ending:
    """Undo what the run did, in this thread; returns how the execution ends."""
    undone: list[str] = []
    # Each undo lets signals through by itself, as each step of a flow does.
    shield = execution.shield or Shield()
    try:
        calls, effects = begin(execution, asked)
        shield.lower()
        for effect in calls:
            execution.check()  # A drain or a pause ends it between two undos.
            body = _body(execution, effect, awaits=False)
            drive(step_script(body.call, execution.history, execution.decode), execution, body)
            undone.append(effect.undo_step)
        return _ended(execution, effects, undone)
    except BaseException as error:
        return run_end.raised(execution, error)
    finally:
        if execution.shield is not None:
            shield.raise_again()


async def roll_back_async(execution: Execution, asked: RollBack) -> Ending:
    """The same, in the running event loop."""
    import asyncio

    from holdfast._runtime.execution.attempt_async import Interrupted, in_thread
    from holdfast._runtime.execution.awaiting_driver import drive_async

    undone: list[str] = []
    try:
        calls, effects = await in_thread(execution, lambda: begin(execution, asked))
        for effect in calls:
            execution.check()
            body = _body(execution, effect, awaits=True)
            script = step_script(body.call, execution.history, execution.decode)
            await drive_async(script, execution, body)
            undone.append(effect.undo_step)
        return _ended(execution, effects, undone)
    except Interrupted:
        return run_end.raised(execution, asyncio.CancelledError())
    except BaseException as error:
        return run_end.raised(execution, error)


def begin(execution: Execution, asked: RollBack) -> tuple[list[Effect], list[Effect]]:
    """Have it in the journal that the run is to be rolled back, and find out what that means."""
    if asked.wanted is not None:
        _request(execution, asked.wanted, asked.took)
    _start_anew(execution, asked, execution.engine.load(execution.lease.row, whole=True))
    return core.to_be_undone(
        execution.history, lambda record: _undo_of(execution, record) is not None
    )


def _request(execution: Execution, wanted: Wanted, took: list[str]) -> None:
    """Write what is asked for. The run stays ours: it is given back and claimed in one write."""
    _written(execution, [], {})  # Everything that was queued before is in the journal now.
    past = execution.engine.load(execution.lease.row, whole=True)
    effects = core.effects_to_undo(past, wanted.to)
    if not wanted.stays:
        # What the code cannot undo, it knows; what it does not know is for people to say.
        without = [
            it.undo_step
            for it in effects
            if it.fate in core.CALLS_UNDO and _undo_of(execution, it.record) is None
        ]
        wanted = msgspec.structs.replace(wanted, stays=tuple(without))
    row, at_us = execution.lease.row, execution.engine.now_us()
    claimed = {"why": ClaimedBecause.OWN, "owner": row.owner, "epoch": row.epoch}
    drafts = [
        core.requested(past, wanted, at_us),
        Draft(Kind.RUN_CLAIMED, at_us, body=msgspec.json.encode(claimed)),
    ]
    changes = {"owner": row.owner, "waiting_on": None, "wake_us": None}
    stopped = control.started_after(
        past, wanted.to, open_children(execution.engine.backend, row.run_id)
    )
    posts = control.to_children(row, stopped, wanted.actor, "rolled back", at_us)
    _written(execution, drafts, changes, [*map(TakeMessage, took), *posts])
    for child in stopped:  # One that nobody has takes it in now.
        absorb(execution.engine, child)


def _written(
    execution: Execution,
    drafts: list[Draft],
    row: dict[str, Any],
    changes: Sequence[Change] = (),
) -> None:
    ticket = execution.recorder.write(drafts, None, row, changes=changes)
    execution.engine.committer.wait(ticket)
    execution.recorder.settled(ticket)


def _start_anew(execution: Execution, asked: RollBack, history: History) -> None:
    """The flow is done with: from here on the execution is that of the rollback."""
    with execution.lock:
        if execution.stopped is asked:
            execution.stopped = asked.then
            if execution.stopped is None:
                execution.interrupted.clear()
        execution.history = history
        execution.recorder.start_again(history)
        execution.waits.unawaited.clear()
        execution.recorder.doubts.clear()
        execution.deadline_us = None


# -- one undo ----------------------------------------------------------------------------------


def _undo_of(execution: Execution, record: Record) -> Undo | None:
    """Return how an effect is taken back, if this process knows it and has what it is called on."""
    settings = registry.effects.get(name_of(record.key))
    undo: Undo | None = None if settings is None else settings.undo
    if settings is None or undo is None:
        return None
    if undo.method and not _is_of(execution.instance, settings.fn.__qualname__):
        return None
    return undo


def _is_of(instance: Any, qualname: str) -> bool:
    owner = qualname.rpartition(".")[0]
    return any(cls.__qualname__ == owner for cls in type(instance).__mro__)


def _body(execution: Execution, effect: Effect, *, awaits: bool) -> Body:
    """Return the call of an undo: the recorded result, the recorded arguments, its own key."""
    record, key = effect.record, effect.undo_step
    undo = _undo_of(execution, record)
    assert undo is not None
    begun, outcome = record.intent or record.doubt, record.outcome
    assert begun is not None
    assert outcome is not None
    with execution.lock:
        values = execution.values
        result = execution.read(bytes(outcome.data()["result"]), key)
        arguments = cast("dict[str, Any]", execution.read(bytes(begun.data()["args"]), key))
        shown = {"result": result, "arguments": arguments}
        digest = values.digest(shown, f"{key}: argument")
        node = values.encode(shown, f"{key}: argument")
    call = StepCall(
        spec=undo.spec,
        key=key,
        position=None,
        args_digest=digest,
        idempotency_key=execution.derived_key(key),
        business_key=None,
        after_data_loss=execution.after_data_loss,
        args_node=node,
        undoes=core.effect_undone(record),
    )
    fn: Any = undo.fn.__get__(execution.instance) if undo.method else undo.fn
    on_doubt = undo.spec.on_doubt
    return Body(
        call,
        without_result(fn, awaits=awaits),
        lambda: undo.arguments(execution.engine, result, arguments),
        None if isinstance(on_doubt, str) else (on_doubt if awaits else blocking(on_doubt)),
        None,
        awaits=awaits and inspect.iscoroutinefunction(fn),
        resources=True,
    )


# -- its end -----------------------------------------------------------------------------------


def _ended(execution: Execution, effects: list[Effect], undone: list[str]) -> Ending:
    history = execution.history
    assert history.rollback is not None
    reason = core.wanted(history.rollback).reason
    end = core.ended(history, effects, undone, execution.engine.now_us())
    held = end.held
    error: RunHeld | RunRolledBack = RunRolledBack(execution.run_id, reason)
    if held is not None:
        error = RunHeld(
            execution.run_id, held["reason"], held["detail"], held["actions"], held["step"]
        )
    return Ending(end.drafts, end.changes, error=error, held=held is not None)


# -- how a rollback is asked for ----------------------------------------------------------------


def _asks_for_rollback(error: BaseException) -> Rollback | None:
    """Return the `Rollback` that a flow raised, alone or with others in a group."""
    if isinstance(error, Rollback):
        return error
    if isinstance(error, BaseExceptionGroup):
        group = cast("BaseExceptionGroup[BaseException]", error)
        return next(filter(None, map(_asks_for_rollback, group.exceptions)), None)
    return None


def unwind_for(execution: Execution, error: BaseException) -> RollBack | None:
    """Return what stops a run whose flow raised `Rollback`."""
    asked = _asks_for_rollback(error)
    if asked is None:
        return None
    reason = redact_text(asked.reason, "rollback", execution.engine.redact)
    return RollBack(execution.run_id, Wanted("flow", reason))


def take_in(execution: Execution, message: Message) -> None:
    """Stop a run at work, because somebody wants what it did undone."""
    if execution.history.rollback is None:
        wanted = msgspec.json.decode(message.body, type=Wanted)
        execution.stop(RollBack(execution.run_id, wanted, [message.message_id]), later=True)


def decided(
    engine: Engine, lease: Lease, history: History, message: Message, at_us: int
) -> Write | None:
    """Return the write of a rollback that was asked for while this process had the run."""
    if history.rollback is not None:
        return None
    row = lease.row
    wanted = msgspec.json.decode(message.body, type=Wanted)
    asked = core.requested(history, wanted, at_us)
    changes = {"waiting_on": None, "wake_us": None, "heard": None}
    stopped = control.started_after(history, wanted.to, open_children(engine.backend, row.run_id))
    posts = control.to_children(row, stopped, wanted.actor, "rolled back", at_us)
    return Write(lease, [asked], row=changes, changes=[*posts, *RUN_ENDS])
