"""The durable operations, written once as generators ("scripts").

A script decides; it never performs. It yields what it needs (`Append`, `Call`, `Sleep`, `Now`,
`Chance`, `FindKey`) and is sent the answer. Two drivers in `_runtime` perform it, one blocking
and one awaiting, and the simulation has a third. One step, from the call to the disk:

    step_script ── match ──► replayed                              (nothing is executed)
        │
        ├─ a plain step ── [budget: Append(start)] ── Call ── Append(outcome) ── [Sleep, again]
        │
        ├─ an effect in the store's own database ── Transact (`transactions`)
        │
        └─ an effect ── Append(intent) ── Call ── Append(outcome)
                            │               └─ error, time-out: Append(step_in_doubt) ─┐
                            └─ found after a crash: Append(step_in_doubt) ─────────────┤
                                       "ask": hold · "retry": again, same key          │
                                       "fail": StepFailed · function: ask the world ◄──┘

An effect that a person has to approve asks before each intent (`approvals`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast._core.attempts import (
    begin,
    failed_attempt,
    give_up,
    marked,
    pause,
    rebuilt,
    step_failed,
)
from holdfast._core.budgets import begun
from holdfast._core.commands import command
from holdfast._core.differing import told
from holdfast._core.doubt import effect_script
from holdfast._core.doubted import was_effect
from holdfast._core.entries import Kind
from holdfast._core.history import Divergence, History, Record, State
from holdfast._core.messages import refused_before
from holdfast._core.requests import (
    Append,
    Call,
    Called,
    Decode,
    Note,
    Script,
    Sleep,
    StepCall,
    Wrote,
)
from holdfast._core.retry import ONCE
from holdfast._core.stops import Unwind
from holdfast._core.transactions import transaction_script
from holdfast.errors import HoldfastError, KeyConflict, RunHeld, ValueRefused


def step_script(call: StepCall, history: History, decode: Decode) -> Script:
    """Execute one call of a step, or replay it."""
    record = find(call, history, decode)
    if record is not None:
        if record.has_outcome:
            return replayed(call, record, decode, history.run_id)
        call.attempt = record.attempts
        if record.state is not State.WAITING:  # For an approval: it was not begun yet.
            call.first_started_us = record.first_started_us
    if call.spec.transaction:
        return (yield from transaction_script(call, record, history.run_id))
    if call.spec.effect:
        return (yield from effect_script(call, record, history.run_id))
    if record is not None and record.is_in_doubt:
        raise was_effect(call, history.run_id)
    return (yield from _plain(call, record, history.run_id))


def find(call: StepCall, history: History, decode: Decode | None = None) -> Record | None:
    """Return the record of this call; a call that does not fit holds the run as diverged."""
    try:
        return history.match(call.key, call.position, call.args_digest)
    except Divergence as found:
        differ = _differences(call, found.other, decode)
        raise Unwind(
            RunHeld(
                history.run_id,
                "diverged",
                f"at {call.key}: {found}{differ}. The flow's code or its inputs changed inside the "
                "part that is already recorded.",
                (
                    "put the old code back and run it again, or",
                    command("resume", history.run_id, "--accept-change"),
                ),
                step=call.key,
            )
        ) from None


def _differences(call: StepCall, record: Record | None, decode: Decode | None) -> str:
    """Return where the arguments of a call differ from the recorded ones, if both are known."""
    if record is None or decode is None or call.args_now is None:
        return ""
    entries = [entry for entry in (record.intent, record.outcome) if entry is not None]
    recorded = [fields["args"] for entry in entries if "args" in (fields := entry.data())]
    if not recorded:
        return ""
    try:
        differ = told(decode(bytes(recorded[-1])), call.args_now)
    except HoldfastError:  # What cannot be read is not shown; the run is held all the same.
        return ""
    return f": {differ}" if differ else ""


def replayed(call: StepCall, record: Record, decode: Decode, run_id: str) -> Any:
    """Return or raise what the recorded outcome says; nothing is executed."""
    assert record.outcome is not None
    data = record.outcome.data()
    if record.state is not State.FAILED:
        return decode(bytes(data.get("result", data.get("value", b"null"))))
    if record.outcome.kind is Kind.QUESTION_ANSWERED:
        raise refused_before(call, record.outcome)
    error = msgspec.json.decode(data["error"])
    if "conflict" in data:
        conflict = msgspec.json.decode(data["conflict"])
        raise marked(KeyConflict(call.spec.name, **conflict), call.key)
    original = rebuilt(call.spec, call.key, data, decode)
    if original is not None:
        raise original
    unknown = "unknown" in data or record.outcome.kind is Kind.STEP_SETTLED
    raise step_failed(call, error, max(record.attempts, 1), run_id, unknown=unknown)


def _plain(call: StepCall, record: Record | None, run_id: str) -> Script:
    policy = call.spec.retry or ONCE
    if record is not None and record.state is State.RETRYING and record.retry_at_us:
        yield Sleep(call, record.retry_at_us)
    if record is not None and record.state is not State.RETRYING and call.attempt > 0:
        call.attempt -= 1  # The attempt that a crash cut short does not count against the policy.
    while True:
        yield from begin(call)
        if call.pot is not None:
            yield from begun(call, [Note(Kind.STEP_STARTED)], run_id)
        called: Called = yield Call(call, "body")
        if called.error is None:
            try:
                wrote: Wrote = yield Append(
                    call,
                    [Note(Kind.STEP_COMPLETED, {}, {"result": called.value}, ends_attempt=True)],
                    waits=not call.spec.grouped,
                )
            except ValueRefused as refused:
                # The next attempt would return the same type, and cost the same again.
                return (yield from give_up(call, refused, run_id))
            else:
                return wrote.value
        assert called.error is not None
        wait_s = yield from pause(call, policy, called.error)
        if wait_s is None:
            return (yield from give_up(call, called.error, run_id))
        yield from failed_attempt(call, called.error, wait_s)
