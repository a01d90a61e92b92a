"""Effects in the store's own database: what they write and their outcome commit together.

No intent is needed before: if the process dies before the commit, nothing has happened, and after
it the outcome is recorded. So there is no doubt, and an error is as harmless as that of a plain
step. The start and the outcome are two entries of one commit.

    begin ── Transact ─┬─ committed ───────────► the result
                       ├─ an error, rolled back ► Append(failed) ── [Sleep, again] or StepFailed
                       ├─ the body ended it by itself ► Append(in doubt), held
                       └─ another has the key ──► its result, or wait for it
"""

from __future__ import annotations

from holdfast._engine.journal.business_keys import claim_of, find_name
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.history import Record, State
from holdfast._engine.scripts.attempts import (
    admitted,
    begin,
    failed_attempt,
    give_up,
    intent,
    key_change,
    pause,
    started,
)
from holdfast._engine.scripts.effect_script import (
    NOTHING,
    ended_by_itself,
    key_is_taken,
    resume_effect,
)
from holdfast._engine.scripts.requests import Note, Script, Sleep, StepCall, Transact, Transacted
from holdfast._engine.scripts.retry import ONCE


def transaction_script(call: StepCall, record: Record | None, run_id: str) -> Script:
    """Execute one call of an effect that is declared with `transaction=True`."""
    yield from find_name(call, record)
    if record is not None:
        if record.state in (State.RUNNING, State.IN_DOUBT):
            # It was begun by code that did not declare it so: that doubt is a real one.
            yield from resume_effect(call, record, run_id)
        if record.state is State.RETRYING and record.retry_at_us:
            yield Sleep(call, record.retry_at_us)
    policy = call.spec.retry or ONCE
    while True:
        yield from admitted(call, run_id)
        yield from begin(call)
        if call.gates:
            yield from started(call, [], run_id)
        done: Transacted = yield _transact(call)
        while done.taken is not None:
            found = yield from key_is_taken(call, done.taken, run_id)
            if found is not NOTHING:
                return found
            yield from admitted(call, run_id)
            done = yield _transact(call)
        if done.error is None:
            return done.value
        if done.in_doubt:
            yield from ended_by_itself(call, intent(call), claim_of(call), done.error, run_id)
        wait_s = None if done.refused else (yield from pause(call, policy, done.error))
        if wait_s is None:
            return (yield from give_up(call, done.error, run_id))
        yield from failed_attempt(call, done.error, wait_s)


def _transact(call: StepCall) -> Transact:
    return Transact(
        call,
        [intent(call), Note(Kind.STEP_COMPLETED, ends_attempt=True)],
        claim_of(call),
        key_change(call, "completed", result=True),
    )
