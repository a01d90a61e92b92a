"""How an execution ends: what is written, and what its caller gets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from holdfast import errors
from holdfast._engine.command_lines import command
from holdfast._engine.decisions.control import MESSAGES
from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.history import Record
from holdfast._engine.journal.lifecycle import HeldReason
from holdfast._engine.journal.rows import Change
from holdfast._engine.journal.step_record import facts
from holdfast._engine.journal.superseded import escaped
from holdfast._engine.scripts.attempts import error_facts, storable
from holdfast._engine.scripts.doubt import DOUBTS, settle_actions
from holdfast._engine.scripts.step_script import CHANGED, PUT_BACK, UNCHANGED
from holdfast._engine.scripts.stops import Tried, Unload, Unwind, waits_for
from holdfast._engine.values.masks import masked
from holdfast._engine.values.redactor import redact_error, redact_text
from holdfast._runtime import registry
from holdfast._runtime.execution.attempt import INTERRUPTS
from holdfast._runtime.execution.execution import INPUT, Execution
from holdfast._runtime.execution.version_rules import mark
from holdfast._runtime.feature import installed
from holdfast._runtime.signatures import fingerprint as of_source
from holdfast._stores.claim_rules import queue_of

TRACE_MAX_CHARS = 20_000

_encode = msgspec.json.encode


class Ending(msgspec.Struct):
    """The last write of an execution, and what comes out of it."""

    drafts: list[Draft]
    row: dict[str, Any]
    value: Any = None
    error: BaseException | None = None
    held: bool = False
    asked: bool = False
    """Whether somebody wants the run cancelled or paused: its caller gets what became of it."""
    changes: Sequence[Change] = ()
    """The changes of the write beside the run."""
    tells_parent: bool = True
    """Whether the run that started this one is sent the news of its end."""
    then: Continuation | None = None
    """The work of the run in place of its flow: its outcome is the end of the run."""


class Continuation(Unwind):
    """Stops the flow, because the run goes on with something else that ends the execution."""

    def perform(self, execution: Execution) -> Ending:
        """Do it in this thread; return how the execution ends."""
        raise NotImplementedError

    async def perform_async(self, execution: Execution) -> Ending:
        """Do it in the running event loop; return how the execution ends."""
        raise NotImplementedError


def check_tried(execution: Execution) -> None:
    """Stop a run before its flow is called, if a worker took it up with code that could not replay
    it before. Nothing is known by that which was not known then. Other code than what a change was
    accepted for has to fit."""
    code = execution.code.mark
    if code:
        execution.history.is_read_by(code)
    tried = execution.history.unfit.get(code)
    if tried is not None and not execution.code.is_chosen:
        told = facts(tried)
        held = errors.RunHeld(
            execution.run_id,
            "diverged",
            str(told.get("detail", "")),
            tuple(told.get("actions", ())),
            step=str(told.get("step", "")),
        )
        raise execution.stop(Unwind(held))


def other_parameters(run_id: str, flow: str, why: str) -> Unwind:
    """Return what stops a run whose flow cannot be called with the recorded input. Nothing that is
    accepted changes that."""
    detail = (
        f"at {INPUT}: the flow {flow} {why}. While there are old runs, new parameters need a default, "
        "and none may be taken away."
    )
    action = "put the old parameters back, give new ones a default, and run it again"
    return Unwind(errors.RunHeld(run_id, HeldReason.DIVERGED, detail, (action,)))


def is_unfit(unwind: Unwind | None) -> bool:
    """Return whether a run was stopped because the code does not fit what is recorded."""
    held = None if unwind is None else unwind.error
    return isinstance(held, errors.RunHeld) and held.reason == HeldReason.DIVERGED


def returned(execution: Execution, value: Any) -> Ending:
    """The flow returned: the run is completed, unless it swallowed a stop."""
    if execution.stopped is not None and (execution.stopped.told or execution.fenced):
        return stopped(execution, execution.stopped, swallowed=True)
    if execution.waits.unawaited:
        names = ", ".join(sorted(execution.waits.unawaited)[:10])
        text = f"the flow ended, but {names} was called and never awaited, so it never happened"
        return raised(execution, errors.UsageError(text))
    if execution.recorder.doubts:
        return stopped(execution, Unwind(_in_doubt(execution)))
    if left := execution.replay.unreplayed_effects.in_doubt(execution.replay.consumed):
        return stopped(execution, Unwind(_left_in_doubt(execution, left[0].key)))
    missed, old = execution.history.unconsumed(execution.replay.consumed)
    left_out = missed or [record for record in old if record.effect and not record.borrowed]
    if left_out and not (execution.history.confirmed and not missed):
        return stopped(execution, Unwind(_left_out(execution, left_out)))
    try:
        node, copy = execution.values.copy(value, "result")
    except errors.NotSerializable as refused:
        return raised(execution, refused)
    body = b'{"result":%b' % node
    if old:
        body += b',"unconsumed":' + _encode([record.key for record in old])
    if execution.history.differing:
        body += b',"other_arguments":' + _encode(sorted(execution.history.differing))
    draft = Draft(Kind.RUN_COMPLETED, execution.engine.now_us(), body=body + b"}")
    return Ending([draft], {}, copy)


def _in_doubt(execution: Execution) -> errors.RunHeld:
    """The flow interrupted an effect and went on: it does not end before that is settled."""
    step = min(execution.recorder.doubts)
    detail = f"{step} may or may not have happened: {DOUBTS['interrupted']}, and the flow went on"
    actions = settle_actions(execution.run_id, step)
    return errors.RunHeld(execution.run_id, "in_doubt", detail, actions, step=step)


def _left_in_doubt(execution: Execution, step: str) -> errors.RunHeld:
    """The flow came to its end without asking for an effect whose outcome is not known."""
    detail = (
        f"{step} may or may not have happened, and the flow ended without coming back to it: a model "
        "that is asked again chooses new ids for its calls. Say what came of it"
    )
    actions = settle_actions(execution.run_id, step)
    return errors.RunHeld(execution.run_id, "in_doubt", detail, actions, step=step)


def _left_out(execution: Execution, records: list[Record]) -> errors.RunHeld:
    """The flow came to its end without asking for something that is recorded."""
    names = ", ".join(record.key for record in records[:10])
    resume = command("resume", execution.run_id, "--accept-change")
    if any(record.effect for record in records):
        resume += " --confirm    (effects among them happened; say that this is meant)"
    return errors.RunHeld(
        execution.run_id,
        "diverged",
        f"the flow ended without calling what the journal has: {names}. {CHANGED}",
        (PUT_BACK, resume),
        step=records[0].key,
    )


def raised(execution: Execution, error: BaseException, *, wraps: bool = True) -> Ending:
    """The flow raised: a stop, an interruption from outside, or a failure."""
    if isinstance(error, Unwind):
        return stopped(execution, error)
    interrupt = isinstance(error, INTERRUPTS) or type(error).__name__ == "CancelledError"
    stop = execution.stopped
    if stop is not None and (stop.told or interrupt or execution.fenced):
        return stopped(execution, stop)
    for unwind_for in installed.unwind_for:
        unwind = unwind_for(execution, error)
        if unwind is not None:
            return stopped(execution, unwind)
    if interrupt:
        body = _encode({"why": "interrupted", "by": type(error).__name__})
        return Ending(
            [Draft(Kind.RUN_RELEASED, execution.engine.now_us(), body=body)], {}, error=error
        )
    news = error_facts(error)
    if execution.engine.redact is not None:
        redact_error(news, "error", execution.engine.redact)
    failure = {"error": news, "steps": escaped(error), "trace": _trace(execution, error)}
    draft = Draft(Kind.RUN_FAILED, execution.engine.now_us(), body=_encode(failure))
    if not wraps:
        return Ending([draft], {}, error=error)
    failed = errors.RunFailed(execution.run_id, news["type"], news["message"])
    failed.__cause__ = error
    return Ending([draft], {}, error=failed)


def _trace(execution: Execution, error: BaseException) -> str:
    import traceback

    redact = execution.engine.own_redact
    if redact is not None:
        # Where it was raised, and no text of any exception in the chain.
        frames = traceback.extract_tb(error.__traceback__)
        places = [f"{it.filename}:{it.lineno} in {it.name}" for it in frames]
        return redact_text(storable("\n".join(places)[-TRACE_MAX_CHARS:]), "trace", redact)
    try:
        text = "".join(traceback.format_exception(error))
    except Exception:
        return "(its traceback cannot be made)"
    return storable(masked(text)[-TRACE_MAX_CHARS:])


def stopped(execution: Execution, unwind: Unwind, *, swallowed: bool = False) -> Ending:
    """The run was stopped from inside: held, taken over, or given back."""
    error = unwind.error
    if isinstance(error, errors.LeaseLost):
        return Ending([], {}, error=error)
    if isinstance(unwind, Continuation):
        return Ending([], {}, then=unwind)
    if swallowed:
        error = errors.RunHeld(
            execution.run_id,
            "diverged",
            f"the flow went on after it was stopped ({str(error).splitlines()[0]}); "
            "it must not catch BaseException",
            ("change the flow, then: " + command("resume", execution.run_id, "--accept-change"),),
        )
    if isinstance(error, errors.RunHeld):
        if error.detail.endswith(CHANGED) and _is_same_code(execution):
            error = _repeats_nothing(error)
        said: dict[str, Any] = {
            "reason": error.reason,
            "detail": redact_text(error.detail, "held", execution.engine.redact),
            "step": error.step,
            "actions": list(error.actions),
        }
        if unwind.differs is not None and not swallowed:
            said["differs"] = unwind.differs
        other_version = execution.recorder.upgrade is not None
        code = execution.code.mark if error.reason == HeldReason.DIVERGED else ""
        if code and (other_version or "differs" not in said):
            said["code"] = code
        if "code" in said and other_version:
            # The code of the run's own version may go on with it.
            body = _encode({"why": "does_not_fit", **said})
            draft = Draft(Kind.RUN_RELEASED, execution.engine.now_us(), body=body)
            return Ending([draft], {"waiting_on": None}, error=_given_back(error, code))
        waiting_on = unwind.waiting_on
        if code:
            tried = mark(code, said.get("differs"), unwind.about)
            waiting_on = _tried(execution, tried)
            if tried != code:
                said["tried"] = tried
        draft = Draft(Kind.RUN_HELD, execution.engine.now_us(), body=_encode(said))
        changes = {"held_reason": error.reason, "waiting_on": waiting_on}
        return Ending([draft], changes, error=error, held=True)
    if unwind.unload is not None:
        return _unloaded(execution, unwind.unload, error)
    if unwind.released is not None:
        body = _encode({"why": unwind.released})
    else:
        body = _encode({"why": "store error", "error": error_facts(error)})
    draft = Draft(Kind.RUN_RELEASED, execution.engine.now_us(), body=body)
    return Ending([draft], {}, error=error, asked=unwind.released in MESSAGES)


def _given_back(held: errors.RunHeld, code: str) -> errors.RunHeld:
    """Return the same, for a run that is not held, but left to the code of its own version."""
    version = code.rpartition("/")[0]
    told = held.reason, held.detail, held.actions, held.step
    return errors.RunHeld(held.run_id, *told, unfit_version=version)


def _is_same_code(execution: Execution) -> bool:
    """Return whether the flow's function is the one that the run was started with."""
    flow, started = registry.flows.get(execution.lease.row.flow), execution.history.started
    was = "" if started is None else facts(started).get("fingerprint", "")
    same = bool(was) and flow is not None and of_source(flow.fn) == was
    return (
        same and execution.recorder.upgrade is None
    )  # Another version says that something changed.


def _repeats_nothing(held: errors.RunHeld) -> errors.RunHeld:
    """Return the same, for code that did not change and still calls something else: what is put back
    is not code."""
    detail = held.detail.removesuffix(CHANGED) + UNCHANGED
    back = "make the flow call what is recorded and run it again, or"
    actions = [back if action == PUT_BACK else action for action in held.actions]
    return errors.RunHeld(held.run_id, held.reason, detail, actions, step=held.step)


def _tried(execution: Execution, last: str) -> str:
    """Return what a run is held on whose code does not fit: other code than all that has tried."""
    row = execution.lease.row
    codes = [it for it in execution.history.tried if it != last]
    return Tried(row.flow, row.version, queue_of(row), [*codes, last]).token()


def _unloaded(execution: Execution, unload: Unload, error: BaseException) -> Ending:
    """The run waits, and is given back until its time or a message comes. It has got as far as it
    can: no claim counts against it."""
    ends = [it.until_us for it in unload.waiting if it.until_us is not None]
    if execution.deadline_us is not None:
        ends.append(execution.deadline_us)
    body = _encode({"for": unload.waiting})
    changes = {
        "owner": None,
        "wake_us": min(ends, default=None),
        "heard": unload.heard,
        "claims": 0,
        "waiting_on": waits_for(unload.waiting),
    }
    draft = Draft(Kind.RUN_WAITING, execution.engine.now_us(), body=body)
    return Ending([draft], changes, error=error)
