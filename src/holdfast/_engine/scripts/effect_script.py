"""Effects: steps with a side effect. The intent before the call, business keys, the in-doubt protocol.

The intent, with the arguments and the idempotency key, is on disk before the call. An effect that was
started and has no recorded outcome is in doubt. Its declared policy or a person settles it; Holdfast
never guesses. So a side effect happens at least once with "retry", at most once with "hold" or "fail",
and exactly once only where the other side deduplicates by the key or answers truthfully.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast._engine.journal.changes import ClaimKey, SetKey
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.history import Record, State
from holdfast._engine.journal.rows import Change, KeyState
from holdfast._engine.journal.step_keys import is_undo
from holdfast._engine.scripts import doubt_policies
from holdfast._engine.scripts.attempts import (
    admitted,
    begin,
    error_facts,
    failed_attempt,
    give_up,
    intent,
    key_change,
    marked,
    pause,
    started,
)
from holdfast._engine.scripts.business_keys import claim_of, find_name
from holdfast._engine.scripts.doubt import OTHER_ARGS, Doubt, held, held_on_key
from holdfast._engine.scripts.doubt_policies import NOT_DONE, UNKNOWN, Done
from holdfast._engine.scripts.requests import (
    Append,
    Call,
    Called,
    CopyResult,
    FindKey,
    FindUnreplayed,
    Note,
    Now,
    Script,
    Sleep,
    StepCall,
    Transact,
    Transacted,
    Wrote,
)
from holdfast._engine.scripts.retry import ONCE, Retry
from holdfast.errors import KeyConflict, NotSerializable

NOTHING: Any = object()
"""No outcome yet: call the effect."""


def effect_script(call: StepCall, record: Record | None, run_id: str) -> Script:
    yield from find_name(call, record)
    if record is None:
        ready = yield from _first(call, run_id)
    else:
        ready = yield from resume_effect(call, record, run_id)
    while True:
        if ready is not NOTHING:
            return ready
        called: Called = yield Call(call, "body")
        if called.error is None:
            return (yield from _effect_returned(call, called.value, run_id))
        if isinstance(called.error, call.spec.not_done_on):
            ready = yield from _did_not_happen(call, called.error, run_id)
        else:
            why = "timeout" if called.timed_out else "error"
            doubt = Doubt(why, called.ended, called.error)
            yield Append(call, [doubt.note(call.spec)], changes=key_change(call, "in_doubt"))
            ready = yield from _settle(call, doubt, run_id)


def _first(call: StepCall, run_id: str) -> Script:
    """Begin an effect that is new to the journal, unless it may have happened all the same: before
    the store lost records, or under another key."""
    doubt: Doubt | None = None
    if call.after_data_loss:
        doubt = Doubt("data_loss", True)
    elif call.position is None and call.business_key is None and not is_undo(call.key):
        other: str | None = yield FindUnreplayed(call)
        doubt = None if other is None else Doubt("repeated", True, other=other)
    if doubt is None:
        return (yield from _claim(call, run_id))
    yield Append(call, [doubt.note(call.spec, {"key": call.idempotency_key})])
    return (yield from _settle(call, doubt, run_id))


def resume_effect(call: StepCall, record: Record, run_id: str) -> Script:
    """Continue an effect that an earlier process left without an outcome."""
    if record.state is State.RETRYING:
        if record.retry_at_us:
            yield Sleep(call, record.retry_at_us)
        return (yield from _claim(call, run_id))
    if record.state in (State.NOT_DONE, State.CANCELLED, State.WAITING):
        return (yield from _claim(call, run_id))
    doubt = Doubt("process_died", record.ended, lost_us=record.lost_us)
    if record.state is not State.IN_DOUBT:
        yield Append(call, [doubt.note(call.spec)], changes=key_change(call, "in_doubt"))
    elif record.doubt is not None:
        facts = msgspec.json.decode(record.doubt.body)
        other = facts.get("other", "")
        met = facts.get("error")
        lost_us = record.lost_us
        doubt = Doubt(facts["why"], record.ended, lost_us=lost_us, other=other, recorded=met)
    doubt.other_args = record.args_digest not in (None, call.args_digest)
    return (yield from _settle(call, doubt, run_id))


def _claim(call: StepCall, run_id: str, *, in_doubt: bool = False) -> Script:
    """Commit the intent of the next attempt with the claim of the business key, if there is one.
    Returns NOTHING if the effect may be called. A key that this call has already is claimed again:
    if it was known not to have happened, another run may have claimed it meanwhile."""
    yield from admitted(call, run_id, in_doubt=in_doubt)
    if call.attempt.number:
        yield from _check_lifetime(call, run_id)
    yield from begin(call)
    claim = claim_of(call)
    while True:
        wrote: Wrote = yield from started(call, [intent(call)], run_id, claim)
        if wrote.taken_key is None:
            return NOTHING
        found = yield from key_is_taken(call, wrote.taken_key, run_id)
        if found is not NOTHING:
            return found
        yield from admitted(call, run_id, in_doubt=in_doubt)


def _check_lifetime(call: StepCall, run_id: str) -> Script:
    """Refuse to send a key that the other side may have forgotten."""
    now_us: int = yield Now()
    if not doubt_policies.may_send(call.attempt.first_started_us, now_us, call.spec.key_ttl_s):
        doubt = Doubt("key_expired", True)
        yield Append(call, [doubt.note(call.spec)], changes=key_change(call, "in_doubt"))
        raise held(call, doubt, run_id, "give it up (--fail) and run it again: under a new key")
    return None


def key_is_taken(call: StepCall, taken: KeyState, run_id: str) -> Script:
    """Another call has the key: return its result, wait for it, or raise."""
    if taken.args_digest != call.args_digest:
        why = f"taken by run {taken.run_id!r} with other arguments"
        return (yield from _refused(call, why, taken))
    if taken.state == "undone":
        why = f"it was done by run {taken.run_id!r} and undone since"
        return (yield from _refused(call, why, taken))
    if taken.state == "completed":
        result = yield CopyResult(taken)
        facts = {"other_run": taken.run_id, "other_step": taken.step, "key": call.business_key}
        wrote: Wrote = yield Append(
            call,
            [Note(Kind.SKIPPED_DUPLICATE, facts, {"result": result}, ends_attempt=True)],
        )
        return wrote.value
    stranded: bool = yield FindKey(call, taken)
    if stranded:
        raise held_on_key(call, taken, run_id)
    return NOTHING


def _refused(call: StepCall, why: str, taken: KeyState) -> Script:
    """Record that the key is not available, so that a replay raises the same error."""
    error = KeyConflict(call.spec.name, str(call.business_key), why, other_run=taken.run_id)
    conflict = {"key": error.key, "why": why, "other_run": taken.run_id}
    facts = {"error": error_facts(error), "final": True, "conflict": conflict}
    failed = Note(Kind.STEP_FAILED, facts, ends_attempt=True)
    yield Append(call, [failed])
    raise marked(error, call.key)


def ended_by_itself(
    call: StepCall, begun: Note, claim: ClaimKey | None, error: BaseException, run_id: str
) -> Script:
    """The body of a transactional effect ended the transaction itself: only a person can find out
    what happened. Its key, if it can still be claimed, is reserved until then."""
    doubt = Doubt("error", True, error)
    notes = [begun, doubt.note(call.spec)]
    keys: list[Change] = []
    if claim is not None:
        keys = [claim, SetKey(claim.effect, claim.key, "in_doubt")]
    wrote: Wrote = yield Append(call, notes, changes=keys)
    if wrote.taken_key is not None:
        yield Append(call, notes)
    raise held(call, doubt, run_id)


def _effect_returned(call: StepCall, value: Any, run_id: str) -> Script:
    try:
        wrote: Wrote = yield Append(
            call,
            [Note(Kind.STEP_COMPLETED, {}, {"result": value}, ends_attempt=True)],
            changes=key_change(call, "completed", result=True),
        )
    except NotSerializable as refused:
        doubt = Doubt("value_lost", True, refused)
        yield Append(call, [doubt.note(call.spec)], changes=key_change(call, "in_doubt"))
        raise held(call, doubt, run_id) from None
    return wrote.value


def _did_not_happen(call: StepCall, error: BaseException, run_id: str) -> Script:
    """A declared "it did not happen": retry it, or give up."""
    wait_s = yield from pause(call, call.spec.retry or ONCE, error)
    if wait_s is None:
        return (yield from give_up(call, error, run_id))
    yield from failed_attempt(call, error, wait_s)
    return (yield from _claim(call, run_id))


def _settle(call: StepCall, doubt: Doubt, run_id: str) -> Script:
    """Settle a doubt by the declared policy: a value, NOTHING (call it again), or a stop."""
    policy = call.spec.on_doubt
    if doubt.why == "value_lost" or policy == "hold":
        raise held(call, doubt, run_id)
    if policy == "fail":
        error = doubt.error or RuntimeError("the process died before the outcome was recorded")
        return (yield from give_up(call, error, run_id, unknown=True))
    if doubt.other_args:
        raise held(call, doubt, run_id, OTHER_ARGS)
    if doubt.why == "repeated" and policy == "retry":
        raise held(
            call, doubt, run_id, "on_doubt='retry', but under a new key it would be done twice"
        )
    now_us: int = yield Now()
    if policy == "retry":
        again = call.spec.retry or Retry()
        young = doubt_policies.may_send(
            call.attempt.first_started_us or now_us, now_us, call.spec.key_ttl_s
        )
        if call.attempt.number >= again.attempts or not young:
            why = "its key is too old to be sent again" if not young else "all attempts are used"
            raise held(call, doubt, run_id, f"on_doubt='retry', but {why}", too_old=not young)
        if doubt.error is not None:
            wait_s = yield from pause(call, again, doubt.error)
            if wait_s is None:
                raise held(call, doubt, run_id, "on_doubt='retry', but its policy gives up")
            yield Sleep(call, now_us + int(wait_s * 1e6))
        return (yield from _claim(call, run_id, in_doubt=True))
    return (yield from _ask_the_world(call, doubt, run_id, now_us))


def _ask_the_world(call: StepCall, doubt: Doubt, run_id: str, now_us: int) -> Script:
    called: Called = yield Call(call, "on_doubt")
    answer: Any = called.value if called.error is None else None
    if isinstance(answer, Done):
        facts = {"outcome": "done", "source": "on_doubt"}
        try:
            wrote: Wrote = yield Append(
                call,
                [
                    Note(
                        Kind.STEP_SETTLED,
                        facts,
                        {"result": called.value.result},
                        ends_attempt=True,
                    )
                ],
                changes=key_change(call, "completed", result=True),
            )
        except NotSerializable as refused:
            raise held(call, Doubt("value_lost", True, refused), run_id) from None
        return wrote.value
    if answer is not NOT_DONE:
        if called.error is not None:
            news = error_facts(called.error)
            why = f"on_doubt raised {news['type']}: {news['message']}"
        elif answer is UNKNOWN:
            why = "on_doubt answered UNKNOWN"
        else:
            why = (
                f"on_doubt returned {answer!r:.80}, which is not Done(result), NOT_DONE or UNKNOWN"
            )
        raise held(call, doubt, run_id, why)
    if not doubt_policies.not_done_is_believed(
        ended=doubt.ended, lost_us=doubt.lost_us, timeout_s=call.spec.timeout_s, now_us=now_us
    ):
        raise held(
            call,
            doubt,
            run_id,
            "on_doubt answered NOT_DONE, but the attempt that left the doubt may still be acting",
        )
    young = doubt_policies.may_send(
        call.attempt.first_started_us or now_us, now_us, call.spec.key_ttl_s
    )
    if not young:
        raise held(call, doubt, run_id, "its key is too old to be sent again", too_old=True)
    yield Append(
        call,
        [Note(Kind.STEP_SETTLED, {"outcome": "not_done", "source": "on_doubt"})],
        changes=key_change(call, "not_done"),
    )
    return (yield from _claim(call, run_id))


# -- effects in the store's own database -------------------------------------------------------


def transaction_script(call: StepCall, record: Record | None, run_id: str) -> Script:
    """Execute one call of an effect that is declared with `transaction=True`: what it writes and its
    outcome commit together.

    No intent is needed before: if the process dies before the commit, nothing has happened, and after
    it the outcome is recorded. So there is no doubt, and an error is as harmless as that of a plain
    step. The start and the outcome are two entries of one commit.

        begin ── Transact ─┬─ committed ───────────► the result
                           ├─ an error, rolled back ► Append(failed) ── [Sleep, again] or StepFailed
                           ├─ the body ended it by itself ► Append(in doubt), held
                           └─ another has the key ──► its result, or wait for it
    """
    yield from find_name(call, record)
    if record is not None:
        if record.state in (State.RUNNING, State.IN_DOUBT):
            # It was begun by code that did not declare it so: that doubt is real.
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
