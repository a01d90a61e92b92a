"""Effects: the intent before the call, business keys, and the in-doubt protocol.

An effect that was started and whose outcome is not known is in doubt. It is settled by its declared
policy or by a person, never by a guess.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast._core import effects
from holdfast._core.approvals import approved
from holdfast._core.attempts import (
    begin,
    failed_attempt,
    give_up,
    intent,
    key_change,
    marked,
    pause,
    told,
)
from holdfast._core.budgets import begun
from holdfast._core.claims import claim_of, find_name
from holdfast._core.commands import command
from holdfast._core.effects import NOT_DONE, UNKNOWN, Done
from holdfast._core.entries import Kind
from holdfast._core.history import Record, State
from holdfast._core.requests import (
    Append,
    Call,
    Called,
    CopyResult,
    FindKey,
    Note,
    Now,
    Script,
    Sleep,
    StepCall,
    Wrote,
)
from holdfast._core.retry import ONCE, Retry
from holdfast._core.rows import KeyChange, KeyClaim, KeyState
from holdfast._core.stops import Unwind
from holdfast.errors import KeyConflict, RunHeld, ValueRefused

OTHER_ARGS = (
    "it was called with other arguments than now (a change was accepted), so to call it again would "
    "not repeat it, and nobody can ask about it for you: see what it was called with, and say what "
    "came of that"
)
NOTHING: Any = object()
"""No outcome yet: call the effect."""


def effect_script(call: StepCall, record: Record | None, run_id: str) -> Script:
    yield from find_name(call, record)
    if record is None and call.adopted:
        facts = {"why": "adopted", "ended": True, "key": call.idempotency_key}
        yield Append(call, [Note(Kind.STEP_IN_DOUBT, facts)])
        ready = yield from _settle(call, _Doubt("adopted", True), run_id)
    elif record is None:
        ready = yield from _claim(call, run_id)
    else:
        ready = yield from resume_effect(call, record, run_id)
    while True:
        if ready is not NOTHING:
            return ready
        called: Called = yield Call(call, "body")
        if called.error is None:
            return (yield from _effect_returned(call, called.value, run_id))
        if isinstance(called.error, call.spec.failed_on):
            ready = yield from _did_not_happen(call, called.error, run_id)
        else:
            why = "timeout" if called.timed_out else "error"
            doubt = _Doubt(why, called.ended, called.error)
            yield Append(call, [doubt.note()], keys=key_change(call, "in_doubt"))
            ready = yield from _settle(call, doubt, run_id)


def resume_effect(call: StepCall, record: Record, run_id: str) -> Script:
    """Go on with an effect that an earlier process left without outcome."""
    if record.state is State.RETRYING:
        if record.retry_at_us:
            yield Sleep(call, record.retry_at_us)
        return (yield from _claim(call, run_id))
    if record.state in (State.NOT_DONE, State.CANCELLED, State.WAITING):
        return (yield from _claim(call, run_id))
    doubt = _Doubt("process_died", record.ended, lost_us=record.lost_us)
    if record.state is not State.IN_DOUBT:
        yield Append(call, [doubt.note()], keys=key_change(call, "in_doubt"))
    elif record.doubt is not None:
        facts = msgspec.json.decode(record.doubt.body)
        doubt = _Doubt(facts["why"], record.ended, lost_us=record.lost_us)
    doubt.other_args = record.args_digest not in (None, call.args_digest)
    return (yield from _settle(call, doubt, run_id))


class _Doubt:
    """Why an effect is in doubt, and whether the attempt that left it so has ended."""

    def __init__(
        self, why: str, ended: bool, error: BaseException | None = None, lost_us: int | None = None
    ) -> None:
        self.why = why
        self.ended = ended
        self.error = error
        self.lost_us = lost_us
        self.other_args = False
        """Whether it is called with other arguments now: somebody has accepted a change of the flow."""

    def note(self) -> Note:
        facts: dict[str, Any] = {"why": self.why, "ended": self.ended}
        if self.error is not None:
            facts["error"] = told(self.error)
        return Note(Kind.STEP_IN_DOUBT, facts)


def _claim(call: StepCall, run_id: str, *, in_doubt: bool = False) -> Script:
    """Commit the intent of the next attempt, together with the claim of the business key if there
    is one; NOTHING means: call it. A key that this call has already is claimed again: another run
    may have got it meanwhile, if it was known not to have happened."""
    yield from approved(call, run_id, in_doubt=in_doubt)
    if call.attempt:
        yield from _check_lifetime(call, run_id)
    yield from begin(call)
    claim = claim_of(call)
    if claim is None:
        yield from begun(call, [intent(call)], run_id)
        call.used_up()
        return NOTHING
    while True:
        wrote: Wrote = yield from begun(call, [intent(call)], run_id, claim)
        if wrote.taken is None:
            call.used_up()
            return NOTHING
        found = yield from key_is_taken(call, wrote.taken, run_id)
        if found is not NOTHING:
            return found
        yield from approved(call, run_id, in_doubt=in_doubt)


def _check_lifetime(call: StepCall, run_id: str) -> Script:
    """Never show a key to the other side when it may have forgotten it."""
    now_us: int = yield Now()
    if not effects.may_send(call.first_started_us, now_us, call.spec.key_ttl_s):
        doubt = _Doubt("key_expired", True)
        yield Append(call, [doubt.note()], keys=key_change(call, "in_doubt"))
        raise _held(call, doubt, run_id, "give it up (--fail) and run it again: under a new key")
    return None


def key_is_taken(call: StepCall, taken: KeyState, run_id: str) -> Script:
    """Another call has the key: return its result, wait for it, or say why not."""
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
            took=call.takes,
            closes=call.closes,
        )
        return wrote.value
    if taken.state == "in_doubt":
        raise _held_on_key(call, taken, run_id)
    stranded: bool = yield FindKey(call, taken)
    if stranded:
        raise _held_on_key(call, taken, run_id)
    return NOTHING


def _refused(call: StepCall, why: str, taken: KeyState) -> Script:
    """Record that the key cannot be had, so that a replay tells the flow the same."""
    error = KeyConflict(call.spec.name, str(call.business_key), why, other_run=taken.run_id)
    conflict = {"key": error.key, "why": why, "other_run": taken.run_id}
    facts = {"error": told(error), "final": True, "conflict": conflict}
    failed = Note(Kind.STEP_FAILED, facts, ends_attempt=True)
    yield Append(call, [failed], took=call.takes, closes=call.closes)
    raise marked(error, call.key)


def ended_by_itself(
    call: StepCall, started: Note, claim: KeyClaim | None, error: BaseException, run_id: str
) -> Script:
    """The body of a transactional effect committed, or rolled back, by itself: only a person can
    say what has happened. Its key, if it can still be had, is kept from others until then."""
    doubt = _Doubt("error", True, error)
    notes = [started, doubt.note()]
    keys = []
    if claim is not None:
        keys = [KeyChange(claim.effect, claim.key, "in_doubt", False)]
    took, closes = call.takes, call.closes
    wrote: Wrote = yield Append(call, notes, claim=claim, keys=keys, took=took, closes=closes)
    if wrote.taken is not None:
        yield Append(call, notes, took=took, closes=closes)
    raise _held(call, doubt, run_id)


def _effect_returned(call: StepCall, value: Any, run_id: str) -> Script:
    try:
        wrote: Wrote = yield Append(
            call,
            [Note(Kind.STEP_COMPLETED, {}, {"result": value}, ends_attempt=True)],
            keys=key_change(call, "completed", result=True),
        )
    except ValueRefused as refused:
        doubt = _Doubt("value_lost", True, refused)
        yield Append(call, [doubt.note()], keys=key_change(call, "in_doubt"))
        raise _held(call, doubt, run_id) from None
    return wrote.value


def _did_not_happen(call: StepCall, error: BaseException, run_id: str) -> Script:
    """A declared "it did not happen": retry it, or give up."""
    wait_s = yield from pause(call, call.spec.retry or ONCE, error)
    if wait_s is None:
        return (yield from give_up(call, error, run_id))
    yield from failed_attempt(call, error, wait_s)
    return (yield from _claim(call, run_id))


def _settle(call: StepCall, doubt: _Doubt, run_id: str) -> Script:
    """Settle a doubt by the declared policy: a value, NOTHING (call it again), or a stop."""
    policy = call.spec.on_doubt
    if doubt.why == "value_lost" or policy == "ask":
        raise _held(call, doubt, run_id)
    if policy == "fail":
        error = doubt.error or RuntimeError("the process died before the outcome was recorded")
        return (yield from give_up(call, error, run_id, unknown=True))
    if doubt.other_args:
        raise _held(call, doubt, run_id, OTHER_ARGS)
    now_us: int = yield Now()
    if policy == "retry":
        again = call.spec.retry or Retry()
        young = effects.may_send(call.first_started_us or now_us, now_us, call.spec.key_ttl_s)
        if call.attempt >= again.attempts or not young:
            why = "its key is too old to be sent again" if not young else "all attempts are used"
            raise _held(call, doubt, run_id, f"on_doubt='retry', but {why}", too_old=not young)
        if doubt.error is not None:
            wait_s = yield from pause(call, again, doubt.error)
            if wait_s is None:
                raise _held(call, doubt, run_id, "on_doubt='retry', but its policy gives up")
            yield Sleep(call, now_us + int(wait_s * 1e6))
        return (yield from _claim(call, run_id, in_doubt=True))
    return (yield from _ask_the_world(call, doubt, run_id, now_us))


def _ask_the_world(call: StepCall, doubt: _Doubt, run_id: str, now_us: int) -> Script:
    called: Called = yield Call(call, "on_doubt")
    answer: Any = called.value if called.error is None else None
    if isinstance(answer, Done):
        facts = {"as": "done", "source": "on_doubt"}
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
                keys=key_change(call, "completed", result=True),
            )
        except ValueRefused as refused:
            raise _held(call, _Doubt("value_lost", True, refused), run_id) from None
        return wrote.value
    if answer is not NOT_DONE:
        if called.error is not None:
            news = told(called.error)
            why = f"on_doubt raised {news['type']}: {news['message']}"
        elif answer is UNKNOWN:
            why = "on_doubt answered UNKNOWN"
        else:
            why = (
                f"on_doubt returned {answer!r:.80}, which is not Done(result), NOT_DONE or UNKNOWN"
            )
        raise _held(call, doubt, run_id, why)
    if not effects.not_done_is_believed(
        ended=doubt.ended, lost_us=doubt.lost_us, timeout_s=call.spec.timeout_s, now_us=now_us
    ):
        raise _held(
            call,
            doubt,
            run_id,
            "on_doubt answered NOT_DONE, but the attempt that left the doubt may still be acting",
        )
    young = effects.may_send(call.first_started_us or now_us, now_us, call.spec.key_ttl_s)
    if not young:
        raise _held(call, doubt, run_id, "its key is too old to be sent again", too_old=True)
    yield Append(
        call,
        [Note(Kind.STEP_SETTLED, {"as": "not_done", "source": "on_doubt"})],
        keys=key_change(call, "not_done"),
    )
    return (yield from _claim(call, run_id))


DOUBTS = {
    "process_died": "its process died after it was started and before its outcome was recorded",
    "error": "it raised an error that does not say whether it happened",
    "timeout": "it ran out of time, and the request may still have been carried out",
    "value_lost": "it returned, so it happened, but its result could not be stored",
    "interrupted": "it was interrupted while it was at work",
    "adopted": "the store lost records, so it may have happened before",
    "key_expired": "its key is older than key_ttl=, and is not shown to the other side again",
}
"""What each kind of doubt means, for people."""


def _held(
    call: StepCall, doubt: _Doubt, run_id: str, more: str = "", *, too_old: bool = False
) -> Unwind:
    detail = f"{call.key} may or may not have happened: {DOUBTS[doubt.why]}"
    if doubt.why == "value_lost":
        detail = f"{call.key} happened, but {DOUBTS['value_lost'].partition('but ')[2]}"
    if doubt.error is not None:
        news = told(doubt.error)
        detail += f" ({news['type']}: {news['message']})"
    if more:
        detail += f"; {more}"
    done, not_done, fail = settle_actions(run_id, call.key)
    # A key that is too old is never sent: "not done" would hold it once more.
    decided = too_old or doubt.why in ("value_lost", "key_expired")
    actions = (done, fail) if decided else (done, not_done, fail)
    return Unwind(RunHeld(run_id, "in_doubt", detail, actions, step=call.key))


def _held_on_key(call: StepCall, taken: KeyState, run_id: str) -> Unwind:
    detail = (
        f"{call.key} uses the key {call.business_key!r}, which is in doubt in run "
        f"{taken.run_id!r} at {taken.step}; settling one of them frees both"
    )
    actions = settle_actions(run_id, call.key)
    held = RunHeld(run_id, "in_doubt", detail, actions, step=call.key)
    return Unwind(held, waiting_on=key_token(taken.effect, taken.key))


def key_token(effect: str, key: str) -> str:
    """Return what `waiting_on` says of a run that is held on another run's key."""
    return f"key:{effect}:{key}"


def settle_actions(run_id: str, step: str) -> tuple[str, ...]:
    """Return the commands that settle a doubt."""
    return (
        command("settle", run_id, step, "--done", "JSON") + "    (it happened; this is its result)",
        command("settle", run_id, step, "--not-done") + "     (it did not happen: it will be run)",
        command("settle", run_id, step, "--fail", "REASON") + "  (give it up)",
    )
