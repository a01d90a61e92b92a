"""Context functions that never wait: recorded clock, randomness and ids of a flow, and facts for a step.

A flow that looks at the time or at chance would take another way on replay. These functions record
what they saw, so that it sees the same again.
"""

from __future__ import annotations

import datetime as dt
import os
import random
from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.step_keys import check_label, marker
from holdfast._engine.journal.step_record import EMITTED, VALUE
from holdfast._engine.scripts.requests import Spec, StepCall
from holdfast._engine.values.masks import masked
from holdfast._engine.values.redactor import redact_text
from holdfast._features.budgets.model import added
from holdfast._features.budgets.runtime import priced
from holdfast._runtime.execution import key_override
from holdfast._runtime.execution.fingerprints import fingerprint
from holdfast._runtime.execution.frames import Frame, check_owner, current, in_flow, in_step
from holdfast._runtime.execution.operations import recorded_at
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from uuid import UUID


def now() -> dt.datetime:
    """Return the time, in UTC; the same again on replay."""
    moment: dt.datetime = _recorded("now", _moment)
    return moment


def rng() -> random.Random:
    """Return a random generator whose seed is recorded."""
    seed: int = _recorded("rng", lambda _us: int.from_bytes(os.urandom(8)) >> 1)
    return random.Random(seed)  # noqa: S311 - repeatable on purpose


def uuid4() -> UUID:
    """Return a random UUID; the same again on replay."""
    from uuid import UUID, uuid4  # Loads much.

    made: str = _recorded("uuid4", lambda _us: str(uuid4()))
    return UUID(made)


def _moment(at_us: int) -> dt.datetime:
    return dt.datetime.fromtimestamp(at_us / 1e6, dt.UTC)


def _recorded(name: str, make: Callable[[int], Any]) -> Any:
    frame = in_flow(f"holdfast.{name}()")
    execution = frame.execution
    execution.check()
    key, position = key_override.take(frame, name, key_override.current_key())
    call = StepCall(Spec(name), key, position, None, "", None)
    record = recorded_at(frame, call, VALUE)
    if record is not None and record.outcome is not None:
        execution.replay.replayed(key)
        return execution.read(bytes(record.outcome.data()["value"]), key)
    at_us = execution.engine.now_us()
    with execution.lock:
        node, value = execution.values.copy(make(at_us), name)
        body = b'{"value":%b}' % node
        draft = Draft(Kind.VALUE_RECORDED, at_us, key, position=position, body=body)
        execution.recorder.write([draft], lazily=True)
    return value


def emit(value: Any) -> None:
    """Send a value to the readers of the run's stream; from a flow or a step."""
    frame = current.get()
    if frame is None:
        raise UsageError("holdfast.emit(…) is called inside a flow or a step")
    execution = frame.execution
    execution.check()
    if frame.call is not None:
        key, attempt, position = frame.call.key, frame.call.attempt.number, None
    else:
        key, position = key_override.take(frame, "emit", key_override.current_key())
        attempt = 0
        call = StepCall(Spec("emit"), key, position, None, "", None)
        if recorded_at(frame, call, EMITTED) is not None:
            execution.replay.replayed(key)
            return
    with execution.lock:
        if frame.attempt_has_ended():
            return  # Nobody waits any more for what an abandoned thread says.
        body = b'{"value":%b}' % execution.values.encode(value, "emit")
        if frame.call is not None and frame.call.attempt.emitting != attempt:
            # An attempt that died has left values with this very number: tell them apart.
            body = b'{"begins":true,' + body[1:]
            frame.call.attempt.emitting = attempt
        at_us = execution.engine.now_us()
        draft = Draft(Kind.VALUE_EMITTED, at_us, key, attempt, position, body=body)
        recorder = execution.recorder
        before = [] if frame.call is None else recorder.start_of(frame.call)
        recorder.write([*before, draft], recorder.in_background)


def idempotency_key() -> str:
    """Inside an effect: the key to show to the other side; the same on every attempt."""
    frame = in_step("holdfast.idempotency_key()")
    assert frame.call is not None
    return frame.call.idempotency_key or frame.execution.derived_key(frame.call.key)


def record_usage(
    *,
    model: str | None = None,
    input_tokens: int = 0,
    output_tokens: int = 0,
    cost_usd: float | Decimal | None = None,
    prompt: Any = None,
    tools: Any = None,
    **more: Any,
) -> None:
    """Inside a step: record what a model call used. The run adds up its tokens and cost. Without
    `cost_usd`, the prices of `holdfast.pricing.set_prices` apply. Of `prompt` and `tools` only
    fingerprints are kept: a run that is resumed reports whether they changed."""
    frame = in_step("holdfast.context.record_usage(…)")
    call = frame.call
    assert call is not None
    used: dict[str, Any] = dict(call.attempt.usage or {})
    amounts: dict[str, Any] = {"input_tokens": input_tokens, "output_tokens": output_tokens}
    if cost_usd is not None:
        amounts["cost"] = float(cost_usd) if isinstance(cost_usd, Decimal) else cost_usd
    if "cost" in more:
        raise UsageError(
            "record_usage(cost_usd=…): the cost of a model call is cost_usd=, in dollars"
        )
    for name, amount in amounts.items():
        if not isinstance(amount, int | float) or amount < 0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(f"record_usage({name}={amount!r}): a number, not negative")
        if amount - amount != 0:
            raise UsageError(f"record_usage({name}={amount!r}): a finite number")
        if amount:
            used[name] = added(name, used.get(name, 0), amount)
    if model is not None:
        used["model"] = masked(str(model))
    if cost_usd is not None:
        used.setdefault("cost", 0)  # A call that cost nothing is not one that nobody knows of.
    elif input_tokens or output_tokens:
        worth = priced(frame.execution, used, input_tokens, output_tokens)
        if worth is not None:
            used["cost"] = added("cost", used.get("cost", 0), worth)
    known = {"prompt": prompt, "tools": tools}
    used.update({n: fingerprint(value) for n, value in known.items() if value is not None})
    redact = frame.execution.engine.redact
    for name, value in more.items():
        used[name] = redact_text(str(value), f"{call.key}: usage.{name}", redact)
    call.attempt.usage = used


def save_progress(value: Any) -> None:
    """Inside a step: note how far it is; a later attempt finds it with `load_progress()`."""
    frame = in_step("holdfast.context.save_progress(…)")
    call, execution = frame.call, frame.execution
    assert call is not None
    if call.spec.transaction:
        raise UsageError(
            f"{call.key} has transaction=True: it is committed as a whole or not at all, so there is "
            "no progress that a later attempt could go on from"
        )
    execution.check()
    with execution.lock:
        if frame.attempt_has_ended():
            return  # Nobody waits any more for what an abandoned thread says.
        node, kept = execution.values.copy(value, f"{call.key}: progress")
        at_us = execution.engine.now_us()
        draft = Draft(
            Kind.STEP_PROGRESSED,
            at_us,
            call.key,
            call.attempt.number,
            call.position,
            call.args_digest,
            body=b'{"value":%b}' % node,
        )
        recorder = execution.recorder
        recorder.write([*recorder.start_of(call), draft], recorder.in_background)
        execution.slot(_Progress)[call.key] = kept


class _Progress(dict[str, Any]):
    """The saved progress of steps, by step key."""


def load_progress() -> Any:
    """Inside a step: what the last `save_progress(…)` of this step noted, in any attempt; or None."""
    frame = in_step("holdfast.context.load_progress()")
    call, execution = frame.call, frame.execution
    assert call is not None
    if call.key in execution.slot(_Progress):
        return execution.slot(_Progress)[call.key]
    record = execution.history.records.get(call.key)
    if record is None or record.progress is None:
        return None
    return execution.read(bytes(record.progress.data()["value"]), call.key)


def is_replaying() -> bool:
    """Return whether the flow is still being replayed: what it does now happened before."""
    frame = current.get()
    if frame is None or frame.call is not None:
        return False
    execution = frame.execution
    if execution.lease.row.origin is not None and execution.recorder.snapshots.has_written:
        return False  # A fork need not ask for all that it borrowed.
    return execution.replay.unreplayed > 0


class CurrentRun:
    """The current run, as its code sees it."""

    def __init__(self, frame: Frame) -> None:
        row = frame.execution.lease.row
        self.run_id = row.run_id
        self.flow = row.flow
        self.generation = frame.execution.generation
        self.step = frame.call.key if frame.call is not None else None
        self.attempt = frame.attempt or None
        self.awaits = frame.awaits

    def __repr__(self) -> str:
        return f"<run {self.run_id!r} of {self.flow}>"


def current_run() -> CurrentRun | None:
    """Return the run that this code is part of, or None outside any run."""
    frame = current.get()
    return None if frame is None else CurrentRun(frame)


# -- changes of the code -----------------------------------------------------------------------


def patched(change: str, /) -> bool:
    """Inside a flow: True if this run has the change, False if it was past this place without it.

        if holdfast.versioning.patched("check first"):
            check(order)
        charge(order)

    A run that was past this place before the change replays the old way for ever; every other run takes
    the new one, and records so when it comes to this place. When no old run is left, the question and the
    old way are taken out of the code; the marker in the newer runs needs nobody to ask for it.
    """
    frame = in_flow("holdfast.versioning.patched(…)")
    check_owner(frame, "patched")
    check_label("the id of a change", change)
    execution, scope = frame.execution, frame.scope
    execution.check()
    history = execution.history
    key = scope.take_key(marker(change))
    if key in history.records:
        if key in history.old and key not in execution.replay.consumed:
            execution.replay.unreplayed -= 1
        execution.replay.consumed.add(key)
        return True
    if execution.ended or history.goes_beyond(
        scope.path, scope.position, execution.replay.consumed
    ):
        return False
    with execution.lock:
        body = b'{"value":%b}' % execution.values.encode(True, "patched")
        draft = Draft(Kind.VALUE_RECORDED, execution.engine.now_us(), key, body=body)
        execution.recorder.write([draft], lazily=True)
    return True
