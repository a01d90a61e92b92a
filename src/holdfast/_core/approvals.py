"""Sealed approvals: a person consents to one call of an effect, with exactly these arguments.

The question shows the stored arguments and their digest; the answer brings the digest back. It is
good for this run, generation, step key and digest, and is used up by the entry of the intent, in one
transaction. Before each attempt it is looked at again: one that has expired, or was given for other
arguments, is void, and a new one is asked for.

    QUESTION_ASKED(approve:STEP) ── approved ──► STEP_STARTED(approved: who, when) takes the message
                                 ├─ refused ───► QUESTION_ANSWERED, and the flow gets Refused
                                 └─ void ──────► MESSAGE_REFUSED, and it is asked again
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast._core.attempts import key_change, step_failed
from holdfast._core.changes import CloseQuestion, OpenQuestion, TakeMessage
from holdfast._core.durations import Duration, micros, shown
from holdfast._core.entries import Entry, Kind
from holdfast._core.keys import check_label
from holdfast._core.messages import ANSWER, refusal, refusal_in, refused_note, told
from holdfast._core.record import Record, facts
from holdfast._core.requests import (
    Append,
    ApprovalOfCall,
    Await,
    FindQuestion,
    FoundQuestion,
    Note,
    Now,
    Script,
    StepCall,
)
from holdfast._core.rows import Message, Question
from holdfast.errors import UsageError

APPROVE = "approve:"
"""How the name of a question begins that asks for an approval; the rest is the step key."""


@dataclasses.dataclass(frozen=True, slots=True)
class Approval:
    """Whom to ask before an effect is executed, and how long the approval holds once it is given."""

    to: str | None = None
    valid_for: Duration | None = None


Needed = bool | Approval
ApproveOption = Needed | Callable[..., Needed]


def checked(option: object, effect: str) -> Any:
    """Return the option `needs_approval=` of an effect, or raise a UsageError."""
    if isinstance(option, Approval):
        _terms(option, effect)
    elif not isinstance(option, bool) and not callable(option):
        raise UsageError(
            f"needs_approval={option!r:.80} of {effect}: True, Approval(to=…, valid_for=…), or a function of "
            "the arguments that returns one of them"
        )
    return option


def needed(
    option: Any, arguments: dict[str, Any], record: Record | None, generation: int, effect: str
) -> ApprovalOfCall | None:
    """Return what a call of an effect needs before it is executed. What was decided when it was
    called first stands in the journal, and a function is not asked again."""
    if record is not None and record.begun is not None:
        return _asked_before(record, record.begun)
    if record is not None and record.intent is not None:
        return None
    if callable(option):
        option = checked(option(**arguments), effect)
    if option is False:
        return None
    to, expires_us = _terms(option, effect) if isinstance(option, Approval) else (None, None)
    return ApprovalOfCall(generation, to, expires_us)


def _asked_before(record: Record, asked: Entry) -> ApprovalOfCall:
    said = facts(asked)
    approval = ApprovalOfCall(record.generation, said.get("to"), said.get("expires_us"))
    if record.intent is not None:
        approval.grant = facts(record.intent).get("approved")
    return approval


def _terms(option: Approval, effect: str) -> tuple[str | None, int | None]:
    to = (
        None
        if option.to is None
        else check_label(f"needs_approval=Approval(to=…) of {effect}", option.to)
    )
    if option.valid_for is None:
        return to, None
    return to, micros(option.valid_for, f"needs_approval=Approval(valid_for=…) of {effect}")


# -- before an attempt -------------------------------------------------------------------------


def approved(call: StepCall, run_id: str, *, in_doubt: bool = False) -> Script:
    """See that the call is approved now: the next entry of it uses the approval up."""
    approval = call.approval
    if approval is None:
        return None
    while True:
        now_us: int = yield Now()
        grant = approval.grant
        if grant is not None:
            void = _is_void(call, grant, now_us)
            if void is None:
                return None
            if approval.took:
                by = {name: grant[name] for name in ("id", "actor", "sent_us")}
                yield from _void(call, by, void, now_us, run_id)
            approval.grant, approval.took, approval.closes = None, [], []
        yield from _ask(call, now_us, run_id)
        message: Message = yield Await(call, None, ANSWER + APPROVE + call.key)
        reason = refusal_in(message)
        if reason is not None:
            yield from _refused(call, message, reason, run_id, in_doubt=in_doubt)
        approval.grant = _granted(approval, message)
        approval.took, approval.closes = [message.message_id], [APPROVE + call.key]


def _granted(approval: ApprovalOfCall, message: Message) -> dict[str, Any]:
    # An answer that was no approval is one of nothing: it is void, and taken as such.
    grant: dict[str, Any] = dict(msgspec.json.decode(message.body).get("approved") or {})
    grant |= told(message)
    if approval.expires_us is not None:
        grant["until_us"] = message.at_us + approval.expires_us
    return grant


def _is_void(call: StepCall, grant: dict[str, Any], now_us: int) -> str | None:
    """Say why an approval is not good for this call now, or None."""
    assert call.approval is not None
    if grant.get("digest") != _digest(call):
        return "it was given for other arguments"
    if grant.get("generation") != call.approval.generation:
        return "it was given in another generation of the run"
    until_us = grant.get("until_us")
    if until_us is not None and until_us <= now_us:
        return f"it had expired {shown(max(now_us - until_us, 1000))} before it was used"
    return None


def _void(call: StepCall, by: dict[str, Any], why: str, now_us: int, run_id: str) -> Script:
    """Take an approval that is good for nothing, and ask again; `by` is what is told of it."""
    assert call.approval is not None
    took = call.approval.took
    found: FoundQuestion = yield FindQuestion(APPROVE + call.key)
    note = Note(Kind.MESSAGE_REFUSED, {**by, "why": why})
    row = _row(call, run_id, found.number + 1, now_us)
    yield Append(
        call,
        [note, _note(call, found.number + 1)],
        changes=[*map(TakeMessage, took), OpenQuestion(row)],
    )


def _ask(call: StepCall, now_us: int, run_id: str) -> Script:
    """Ask for the approval, unless it is being asked for already with these arguments."""
    found: FoundQuestion = yield FindQuestion(APPROVE + call.key)
    row = _row(call, run_id, found.number, now_us)
    if found.open is not None and found.open.body == row.body:
        return
    yield Append(call, [_note(call, found.number)], changes=[OpenQuestion(row)])


def _note(call: StepCall, number: int) -> Note:
    assert call.approval is not None
    said: dict[str, Any] = {"name": APPROVE + call.key, "number": number, "digest": _digest(call)}
    if call.approval.to is not None:
        said["to"] = call.approval.to
    if call.approval.expires_us is not None:
        said["expires_us"] = call.approval.expires_us
    if call.attempt:
        said["args"] = msgspec.Raw(call.args_node)
    return Note(Kind.QUESTION_ASKED, said)


def _row(call: StepCall, run_id: str, number: int, at_us: int) -> Question:
    assert call.approval is not None
    body = {
        "effect": call.spec.name,
        "step": call.key,
        "digest": _digest(call),
        "generation": call.approval.generation,
        "key": call.idempotency_key,
        "expires_us": call.approval.expires_us,
    }
    return Question(
        run_id,
        APPROVE + call.key,
        number,
        "approval",
        call.approval.to,
        msgspec.json.encode(body),
        at_us,
        None,
    )


def _digest(call: StepCall) -> str:
    assert call.args_digest is not None
    return call.args_digest.hex()


def _refused(
    call: StepCall, message: Message, reason: str, run_id: str, *, in_doubt: bool
) -> Script:
    """Record that a person refused, and tell the flow. Of an effect that may have happened before,
    its outcome stays unknown."""
    note = refused_note(call, message, reason)
    taken = [TakeMessage(message.message_id), CloseQuestion(APPROVE + call.key)]
    if not in_doubt:
        keys = key_change(call, "not_done") if call.attempt else []
        yield Append(call, [note], changes=[*keys, *taken])
        raise refusal(call, note.facts)
    error = note.facts["error"]
    said = {"error": error, "final": True, "unknown": True, **told(message)}
    failed = Note(Kind.STEP_FAILED, said, ends_attempt=True)
    yield Append(call, [failed], changes=[*key_change(call, "in_doubt"), *taken])
    raise step_failed(call, error, call.attempt, run_id, unknown=True)
