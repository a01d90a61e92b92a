"""The blocking driver: performs what a script asks for in this thread.

Nothing is decided here; `awaiting_driver` is its twin for event loops. A script that stops the run
(`Unwind`) marks its execution, so that every branch and every later call stops, too. An interrupt
from outside (Ctrl-C, exit, cancellation) is recorded as such: a plain step is cancelled, an effect
is in doubt.
"""

from __future__ import annotations

import time
from typing import Any

from holdfast._engine.journal.changes import SetKey
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.lifecycle import ENDED, Status
from holdfast._engine.journal.rows import KeyState, Refused, Write
from holdfast._engine.scripts.attempts import ending, error_facts, key_change
from holdfast._engine.scripts.doubt import key_token, returned_by
from holdfast._engine.scripts.doubt_policies import policy_name
from holdfast._engine.scripts.requests import (
    Append,
    Await,
    Call,
    Chance,
    CopyResult,
    FindChild,
    FindKey,
    FindUnreplayed,
    LookUpKey,
    Note,
    Now,
    Poll,
    ReadChild,
    Script,
    Sleep,
    StartChild,
    StepCall,
    Transact,
    Wrote,
)
from holdfast._engine.scripts.stops import Unwind
from holdfast._runtime import worker_log
from holdfast._runtime.clocks import CHANCE
from holdfast._runtime.commit.committer import Ticket
from holdfast._runtime.execution import attempt, child_execution, inbox, key_override
from holdfast._runtime.execution.attempt import Body
from holdfast._runtime.execution.branch_waits import await_blocking
from holdfast._runtime.execution.effect_repetition import find_unreplayed
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.transactional_effects import transact
from holdfast._runtime.feature import installed
from holdfast._runtime.interrupt_shield import shield_here
from holdfast.errors import ClassChanged, NotSerializable, StoreError

POLL_S = 0.02
"""A branch that waits for other branches of its run looks this often."""
KEY_POLL_S = 0.05
"""Another run's key is looked at this often."""
KEY_PATIENCE_S = 1.0
"""For so long, in a worker; then the run gives its place to others."""
KEY_PAUSE_US = 3_000_000
"""And comes back after this time."""


# -- blocking --------------------------------------------------------------------------------


def drive(script: Script, execution: Execution, body: Body) -> Any:
    """Perform a script in this thread."""
    shield = shield_here()
    answer: Any = None
    refused: NotSerializable | None = None
    try:
        while True:
            request: Any = script.send(answer) if refused is None else script.throw(refused)
            answer = refused = None
            kind = type(request)  # pyright: ignore[reportUnknownVariableType]
            if kind is Now:
                answer = execution.engine.now_us()
            elif kind is Append:
                try:
                    answer = _append(execution, request)
                except NotSerializable as error:
                    refused = error
            elif kind is Transact:
                execution.recorder.open_calls[body.call.key] = body.call
                answer = transact(execution, body, request, shield)
            else:
                # What an interrupt cuts short is known before it can strike.
                if kind is Call and request.what != "look":
                    execution.recorder.open_calls[body.call.key] = body.call
                if shield is not None:
                    shield.lower()
                if kind is Call:
                    answer = attempt.call_blocking(execution, body, request.what)
                else:
                    answer = perform(execution, request)
                if shield is not None:
                    shield.raise_again()
    except StopIteration as stop:
        return stop.value
    except Unwind as unwind:
        raise execution.stop(unwind) from None
    except attempt.INTERRUPTS as interrupt:
        note_interrupt(execution, body.call, interrupt)
        raise
    except StoreError as error:
        raise execution.stop(Unwind(error)) from error
    except ClassChanged as changed:
        raise execution.class_changed(changed, body.call.key) from None
    finally:
        if shield is not None:
            shield.lower()


def _append(execution: Execution, request: Append) -> Wrote:
    if not request.waits:
        _, copy = execution.recorder.append(request, execution.recorder.in_background)
        return Wrote(copy)
    ticket, copy = execution.recorder.append(request, None)
    try:
        execution.engine.committer.until_done(ticket)
    except BaseException:
        if not ticket.done:
            raise
    return wrote(execution, request.call, ticket, copy)


def wrote(execution: Execution, call: StepCall, ticket: Ticket, copy: Any) -> Wrote:
    """Return the answer to the script about a finished write."""
    outcome = execution.recorder.settled(ticket)
    if isinstance(outcome, Refused):
        execution.recorder.withdraw(ticket.write, call)
        return Wrote(refused=outcome)
    if ticket.write.changes and settles_doubt(ticket.write):
        inbox.free_waiting(execution.engine, ticket.write)
    return Wrote(copy)


def settles_doubt(write: Write) -> bool:
    """Return whether a write may settle a business key that was in doubt: others may be held on it."""
    return bool(write.of(SetKey)) and any(
        draft.kind is Kind.STEP_SETTLED or (draft.attempt or 0) > 1 for draft in write.drafts
    )


def perform(execution: Execution, request: Any) -> Any:
    """Perform the requests that are rare."""
    engine = execution.engine
    if isinstance(request, Chance):
        return CHANCE.random()
    if isinstance(request, CopyResult):
        return engine.result_of(request.key)
    if isinstance(request, LookUpKey):
        return engine.backend.key(request.effect, request.key)
    if isinstance(request, Sleep):
        request = Await(request.call, request.until_us)
    if isinstance(request, Await):
        return await_blocking(execution, request)
    if isinstance(request, StartChild):
        return child_execution.begin_blocking(execution, request.run_id, request.again)
    if isinstance(request, FindChild):
        return child_execution.failed_generation(engine, request.run_id)
    if isinstance(request, ReadChild):
        return child_execution.read(execution, request)
    if isinstance(request, Poll):
        while (found := request.look(engine.now_us())) is None:
            execution.interrupted.wait(POLL_S)
            execution.check()
        return found
    if isinstance(request, FindUnreplayed):
        return find_unreplayed(execution, request)
    if performer := installed.performers.get(request.__class__):
        return performer(execution, request)
    assert isinstance(request, FindKey)
    execution.interrupted.wait(KEY_POLL_S)
    execution.check()
    stranded = is_stranded(execution, request.key)
    if not stranded and key_takes_long(execution, request):
        await_blocking(execution, waits_for_key(execution, request))
    return stranded


def key_takes_long(execution: Execution, request: FindKey) -> bool:
    """Return whether a run in a worker has kept its place for long enough while it waits for another
    run's key: that run may wait for this very place."""
    if not execution.waits.unloads:
        return False
    began_s = execution.waits.key_waits.setdefault(request.call.key, time.monotonic())
    return time.monotonic() - began_s >= KEY_PATIENCE_S


def waits_for_key(execution: Execution, request: FindKey) -> Await:
    """Return the wait after which the key is looked at again; the run is unloaded meanwhile."""
    about = key_token(request.key.effect, request.key.key)
    return Await(request.call, execution.engine.now_us() + KEY_PAUSE_US, about=about)


def is_stranded(execution: Execution, key: KeyState) -> bool:
    """Return whether the run that has a key goes no further by itself."""
    execution.recorder.wait_on(key_token(key.effect, key.key), f"key {key.key!r} of {key.effect}")
    kept = execution.engine.backend
    row = kept.by_number(key.run_no)
    if row is not None and row.status is not Status.HELD and row.status not in ENDED:
        if row.owner is None:
            # A doubt that its run left open, and comes back to or not: nobody settles it now.
            return key.state == "in_doubt"
        return kept.owner_is_dead(row.owner)
    # It ended: what it made of the key before that is there to be read now.
    now = kept.key(key.effect, key.key)
    return now is not None and now.run_no == key.run_no and now.state == key.state


def note_interrupt(execution: Execution, call: StepCall, interrupt: BaseException) -> None:
    """Write down that a call was interrupted: an effect is in doubt, a plain step is not done."""
    if call.key not in execution.recorder.open_calls or execution.fenced:
        return
    execution.recorder.append(_interrupted(call, interrupt), execution.recorder.in_background)
    execution.recorder.open_calls.pop(call.key, None)
    if getattr(interrupt, "again", True):
        key_override.give_back(execution, call)
    if call.spec.effect and call.attempt.begun and not call.spec.transaction:
        execution.recorder.doubts.add(call.key)
        if execution.waits.unloads:  # In a worker: nobody gets the error.
            policy = policy_name(call.spec.on_doubt)
            worker_log.cut_off(execution.engine.backend, execution.lease.row, call.key, policy)


def _interrupted(call: StepCall, interrupt: BaseException) -> Append:
    facts: dict[str, Any] = {"why": "interrupted", "by": type(interrupt).__name__}
    if call.spec.transaction:
        note = Note(Kind.STEP_CANCELLED, {**facts, "rolled_back": True})
        return Append(call, ending(call, note))
    if not call.attempt.begun:
        note = Note(Kind.STEP_CANCELLED, {**facts, "begun": False})
        return Append(call, [note], changes=key_change(call, "not_done"))
    if call.spec.effect:
        facts |= {"ended": not call.attempt.at_large} | returned_by(call.spec)
        note = Note(Kind.STEP_IN_DOUBT, facts)
        return Append(call, [note], changes=key_change(call, "in_doubt"))
    if interrupt.args:
        facts["error"] = error_facts(interrupt)
    return Append(call, [Note(Kind.STEP_CANCELLED, facts)])
