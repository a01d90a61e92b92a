"""The script of a step: call it once, checkpoint its outcome, and return that on every replay.

A durable operation is a generator, a "script". It decides and never performs: it yields requests
(`Append`, `Call`, `Sleep`, `Now`, `Chance`, `FindKey`) and receives the answers. Two drivers in
`_runtime` perform them, one blocking and one awaiting, and the simulation has a third. One step, from
the call to the disk:

    step_script ── match ──► replayed                              (nothing is executed)
        │
        ├─ a plain step ── [gates: Append(start)] ── Call ── Append(outcome) ── [Sleep, again]
        │
        ├─ an effect in the store's own database ── Transact
        │
        └─ an effect ── Append(intent) ── Call ── Append(outcome)
                            │               └─ error, time-out: Append(step_in_doubt) ─┐
                            └─ found after a crash: Append(step_in_doubt) ─────────────┤
                                       "hold": hold · "retry": again, same key          │
                                       "fail": StepFailed · function: ask the world ◄──┘

What features demand of an attempt, such as an approval or a budget, are its gates (`Gate`).
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast._engine.command_lines import command
from holdfast._engine.journal.argument_diff import difference
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.history import Divergence, History, Record, State
from holdfast._engine.journal.step_keys import is_undo
from holdfast._engine.journal.step_record import SCOPE, STEP, facts
from holdfast._engine.scripts.attempts import (
    failed_attempt,
    give_up,
    marked,
    pause,
    rebuilt,
    started,
    step_failed,
)
from holdfast._engine.scripts.doubt import was_effect, with_value
from holdfast._engine.scripts.effect_script import effect_script, transaction_script
from holdfast._engine.scripts.inbox_messages import refused_before
from holdfast._engine.scripts.requests import (
    NOW,
    Append,
    Call,
    Called,
    Decode,
    FindUnreplayed,
    Note,
    Script,
    Sleep,
    StepCall,
    Wrote,
)
from holdfast._engine.scripts.retry import ONCE
from holdfast._engine.scripts.stops import SORT, VALUE, Unwind
from holdfast._engine.values.digest import digest
from holdfast.errors import HoldfastError, KeyConflict, NotSerializable, RunHeld, UsageError

CHANGED = "The flow's code or its inputs changed inside the part that is already recorded."
UNCHANGED = (
    "The flow's function is the same as when the run was started. So look in it for time, chance and "
    "ids that are not recorded (holdfast.context.now(), holdfast.context.rng() and holdfast.context.uuid4() are), for what it "
    "reads outside of steps, and at the functions that it uses."
)
"""The same, if the flow's fingerprint shows that its code is unchanged."""
PUT_BACK = "put the old code back and run it again, or"


Found = Record | Divergence | None
"""The record of a call, as `History.look_up` returns it."""
_NOT_LOOKED_UP: Any = object()


def step_script(
    call: StepCall, history: History, decode: Decode, found: Found = _NOT_LOOKED_UP
) -> Script:
    """Execute one call of a step, or replay it. `found` is its record in the history, if that was
    looked up when the call took its key."""
    if found is _NOT_LOOKED_UP:
        found = history.look_up(call.key, call.position, call.args_digest)
    record = found if found is None else checked(call, found, history, decode, STEP)
    if record is not None:
        if record.has_outcome:
            return replayed(call, record, decode, history.run_id)
        call.attempt.number = record.attempts
        if record.state is not State.WAITING:  # It waited for an approval and has not begun.
            call.attempt.first_started_us = record.first_started_us
    elif history.closed:
        raise _completed(call, history)
    spec = call.spec
    if spec.effect and record is None:
        yield from check_renamed(call, history)
    if spec.transaction:
        return (yield from transaction_script(call, record, history.run_id))
    if spec.effect:
        return (yield from effect_script(call, record, history.run_id))
    if record is not None:
        yield from _taken_up(call, record, history.run_id)
    while True:
        now_us: int = yield NOW
        call.begin(now_us)
        if call.gates:
            yield from started(call, [Note(Kind.STEP_STARTED)], history.run_id)
        called: Called = yield Call(call, "body")
        error = called.error
        if error is None:
            outcome = Note(Kind.STEP_COMPLETED, {}, {"result": called.value}, ends_attempt=True)
            try:
                wrote: Wrote = yield Append(call, [outcome], waits=not spec.grouped)
            except NotSerializable as refused:
                # The next attempt would return the same type, and cost the same again.
                return (yield from give_up(call, refused, history.run_id))
            return wrote.value
        wait_s = yield from pause(call, spec.retry or ONCE, error)
        if wait_s is None:
            return (yield from give_up(call, error, history.run_id))
        yield from failed_attempt(call, error, wait_s)


def _taken_up(call: StepCall, record: Record, run_id: str) -> Script:
    """Continue a plain step that an earlier process left without an outcome."""
    if record.is_in_doubt:
        raise was_effect(call, run_id)
    if record.state is not State.RETRYING:
        if call.attempt.number > 0:
            call.attempt.number -= 1  # The attempt that a crash interrupted does not count.
    elif record.retry_at_us:
        yield Sleep(call, record.retry_at_us)
    return None


def find(
    call: StepCall, history: History, decode: Decode | None = None, sort: str | None = None
) -> Record | None:
    """Return the record of this call; a call that does not fit holds the run as diverged."""
    found = history.look_up(call.key, call.position, call.args_digest)
    return checked(call, found, history, decode, sort)


def checked(
    call: StepCall,
    found: Found,
    history: History,
    decode: Decode | None = None,
    sort: str | None = None,
) -> Record | None:
    """Return the record that was found for a call; one that does not fit holds the run as diverged.
    One of another `sort` (a step that became a flow) never fits, whatever change was accepted."""
    divergence = found if isinstance(found, Divergence) else None
    record = found.other if isinstance(found, Divergence) else found
    another = record is not None and sort not in (None, record.sort) and not record.was_given
    if another:
        assert record is not None
        divergence = Divergence(call.key, f"{call.key} as {record.sort}", f"it as {sort}")
    elif divergence is not None and _same_today(call, record, decode):
        return record
    if divergence is not None:
        differ = _differences(call, divergence.other, decode)
        resume = command("resume", history.run_id, "--accept-change")
        raise Unwind(
            diverged(
                history.run_id,
                call.key,
                f"{divergence}{differ}",
                f"give it another name (name=…), then: {resume}" if another else None,
            ),
            differs=SORT if another else None,
            about=call.spec.name if another else "",
        )
    if history.closed and sort != SCOPE and (record is None or not record.has_outcome):
        raise _completed(call, history)
    return record


def _completed(call: StepCall, history: History) -> UsageError:
    return UsageError(
        f"run {history.run_id!r} has completed without an outcome of {call.key}, and a completed "
        "run executes nothing more; give the script a run id of its own"
    )


def check_renamed(call: StepCall, history: History) -> Script:
    """Hold a run before it starts something new, if its changed code has not called an effect from
    before the accepted change: the new one may be the same under another key."""
    if not history.old or history.confirmed or is_undo(call.key):
        return None
    other: str | None = yield FindUnreplayed(call, before_change=True)
    if other is None:
        return None
    run_id = history.run_id
    raise Unwind(
        RunHeld(
            run_id,
            "diverged",
            f"at {call.key}: the changed code calls {call.key}, which is not recorded, before it has "
            f"called {other}, which happened before the change. If that is the same under another "
            "name, it would be done twice. Nothing of it was executed.",
            (
                "put the old code back, or give it the former name (aliases=…), and run it again, or",
                command("resume", run_id, "--accept-change", "--confirm")
                + f"    (execute {call.key} as a new one)",
            ),
            step=call.key,
        )
    )


def _same_today(call: StepCall, record: Record | None, decode: Decode | None) -> bool:
    """Return whether the recorded arguments, read with today's classes, are those of this call: a class
    that gained a field, or has an upgrade, changes digests and nothing else."""
    if record is None or decode is None or not record.has_outcome:
        return False
    recorded = _arguments(record)
    return recorded is not None and digest(decode(recorded)) == call.args_digest


def _arguments(record: Record) -> bytes | None:
    """The arguments of a call, or the first state of a loop."""
    known = (record.outcome, record.intent, record.begun)  # Begun: it waits for an approval.
    entries = [entry for entry in known if entry is not None]
    name = "state" if record.keeps_place else "args"
    nodes = [fields[name] for entry in entries if name in (fields := entry.data())]
    return bytes(nodes[0]) if nodes else None


def diverged(run_id: str, key: str, found: str, way_on: str | None = None) -> RunHeld:
    """Return the error that holds a run whose code does not fit its record."""
    return RunHeld(
        run_id,
        "diverged",
        f"at {key}: {found}. {CHANGED}",
        (
            PUT_BACK,
            way_on or command("resume", run_id, "--accept-change"),
        ),
        step=key,
    )


def _differences(call: StepCall, record: Record | None, decode: Decode | None) -> str:
    """Return where the arguments of a call differ from the recorded ones, if both are known."""
    if record is None or decode is None or call.args_now is None:
        return ""
    recorded = _arguments(record)
    if recorded is None:
        return ""
    try:
        differ = difference(decode(recorded), call.args_now)
    except HoldfastError:  # What cannot be read is not shown; the run is held all the same.
        return ""
    return f": {differ}" if differ else ""


def replayed(call: StepCall, record: Record, decode: Decode, run_id: str) -> Any:
    """Return or raise the recorded outcome; nothing is executed."""
    assert record.outcome is not None
    data = record.outcome.data()
    if record.state is not State.FAILED:
        value = decode(bytes(data.get("result", data.get("value", b"null"))))
        if record.outcome.kind is Kind.STEP_SETTLED and call.spec.returns is not None:
            return _settled_result(call, record.outcome, value, run_id)
        return value
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


def _settled_result(call: StepCall, settled: Entry, value: Any, run_id: str) -> Any:
    """Return what a person said that an effect returned, as what it is declared to return; a value
    that is none holds the run, and never reaches the flow."""
    said = facts(settled)
    if said.get("source") != "actor" or call.spec.returns is None:
        return value
    try:
        return call.spec.returns.fitted(value)
    except ValueError as error:
        why = " ".join(str(error).split())
    raise Unwind(
        RunHeld(
            run_id,
            "diverged",
            f"at {call.key}: {said['actor']} settled it as done with a value that is not what "
            f"{call.spec.name} returns: {why}. The flow did not receive it.",
            (
                f"if the value is right, declare {call.spec.name} to return it and run it again, or",
                f"{with_value(run_id, call.key)}    (go on in a new run, with the right value)",
            ),
            step=call.key,
        ),
        differs=VALUE,
        about=call.spec.name,
    )
