"""Sealed approvals: human approval of one call of an effect, with exactly these arguments.

The question shows the stored arguments and their digest; the answer brings the digest back. It is
valid for this run, generation, step key and digest, and is used up by the entry of the intent, in one
transaction. `ApprovalGate` does that for one call. It checks the approval again before each attempt:
one that has expired, or was given for other arguments, is void, and a new one is requested.

    QUESTION_ASKED(approve:STEP) ── approved ──► STEP_STARTED(approved: who, when) takes the message
                                 ├─ rejected ──► QUESTION_ANSWERED, and the flow gets Rejected
                                 └─ void ──────► MESSAGE_DISCARDED, and it is asked again
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from holdfast._engine.journal.changes import CloseQuestion, OpenQuestion, TakeMessage
from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.rows import Change, Message, Question, Write
from holdfast._engine.journal.step_keys import APPROVE, check_label
from holdfast._engine.journal.step_record import Record, facts
from holdfast._engine.scripts.attempts import key_change, step_failed
from holdfast._engine.scripts.inbox_messages import (
    ANSWER,
    message_facts,
    refusal,
    refusal_in,
    refused_note,
)
from holdfast._engine.scripts.requests import (
    Append,
    Await,
    Gate,
    Note,
    Now,
    Script,
    StepCall,
)
from holdfast._engine.values.durations import Duration, as_text, micros
from holdfast._features.questions.model import FindQuestion, FoundQuestion
from holdfast.errors import UsageError


class Approval(msgspec.Struct, frozen=True):
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
) -> ApprovalGate | None:
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
    return ApprovalGate(generation, to, expires_us)


def _asked_before(record: Record, asked: Entry) -> ApprovalGate:
    said = facts(asked)
    gate = ApprovalGate(record.generation, said.get("to"), said.get("expires_us"))
    if record.intent is not None:
        gate.grant = facts(record.intent).get("approved")
    return gate


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


class ApprovalGate(Gate):
    """The consent of a person that one call needs before each attempt."""

    def __init__(
        self, generation: int, to: str | None = None, expires_us: int | None = None
    ) -> None:
        self.generation = generation
        """The generation of the run in which it is asked for: part of what is approved."""
        self.to = to
        self.expires_us = expires_us
        """How long an approval is valid; None: as long as the call has no outcome."""
        self.grant: dict[str, Any] | None = None
        """The actor that approved, when, until when: a fact of the intent."""
        self._unused: list[Change] = []
        """The changes of the next entry of an attempt: take the approval, and close its question."""
        self._written: list[Change] = []

    def before(self, call: StepCall, run_id: str, *, in_doubt: bool = False) -> Script:
        while True:
            now_us: int = yield Now()
            grant = self.grant
            if grant is not None:
                void = self._is_void(call, grant, now_us)
                if void is None:
                    return None
                unused, self._unused, self.grant = self._unused, [], None
                if unused:
                    by = {name: grant[name] for name in ("id", "actor", "sent_us")}
                    yield from self._reject_grant(call, by, void, unused, now_us, run_id)
            yield from self._ask(call, now_us, run_id)
            message: Message = yield Await(call, None, ANSWER + APPROVE + call.key)
            reason = refusal_in(message)
            if reason is not None:
                yield from _refused(call, message, reason, run_id, in_doubt=in_doubt)
            self.grant = self._granted(message)
            self._unused = [TakeMessage(message.message_id), CloseQuestion(APPROVE + call.key)]

    def facts(self) -> dict[str, Any]:
        return {} if self.grant is None else {"approved": self.grant}

    def changes(self, request: Append) -> Sequence[Change]:
        notes = request.notes
        if not (self._unused and notes):
            return ()
        if notes[0].kind is not Kind.STEP_STARTED and not notes[-1].ends_attempt:
            return ()
        self._written, self._unused = self._unused, []
        return self._written

    def withdrawn(self, write: Write) -> None:
        if any(change in self._written for change in write.changes):
            self._unused, self._written = self._written, []

    def _granted(self, message: Message) -> dict[str, Any]:
        # An answer that approves nothing is void, and is taken as such.
        grant: dict[str, Any] = dict(msgspec.json.decode(message.body).get("approved") or {})
        grant |= message_facts(message)
        if self.expires_us is not None:
            grant["until_us"] = message.at_us + self.expires_us
        return grant

    def _is_void(self, call: StepCall, grant: dict[str, Any], now_us: int) -> str | None:
        """Return why an approval is not valid for this call now, or None."""
        if grant.get("digest") != _digest(call):
            return "it was given for other arguments"
        if grant.get("generation") != self.generation:
            return "it was given in another generation of the run"
        until_us = grant.get("until_us")
        if until_us is not None and until_us <= now_us:
            return f"it had expired {as_text(max(now_us - until_us, 1000))} before it was used"
        return None

    def _reject_grant(
        self,
        call: StepCall,
        by: dict[str, Any],
        why: str,
        unused: Sequence[Change],
        now_us: int,
        run_id: str,
    ) -> Script:
        """Take an approval that is void, and ask again; `by` says whose it was."""
        taken = [change for change in unused if isinstance(change, TakeMessage)]
        found: FoundQuestion = yield FindQuestion(APPROVE + call.key)
        note = Note(Kind.MESSAGE_DISCARDED, {**by, "why": why})
        number = found.number + 1
        row = self._row(call, run_id, number, now_us)
        yield Append(call, [note, self._note(call, number)], changes=[*taken, OpenQuestion(row)])

    def _ask(self, call: StepCall, now_us: int, run_id: str) -> Script:
        """Ask for the approval, unless it is being asked for already with these arguments."""
        found: FoundQuestion = yield FindQuestion(APPROVE + call.key)
        row = self._row(call, run_id, found.number, now_us)
        if found.open is not None and found.open.body == row.body:
            return
        yield Append(call, [self._note(call, found.number)], changes=[OpenQuestion(row)])

    def _note(self, call: StepCall, number: int) -> Note:
        said: dict[str, Any] = {
            "name": APPROVE + call.key,
            "number": number,
            "digest": _digest(call),
        }
        if self.to is not None:
            said["to"] = self.to
        if self.expires_us is not None:
            said["expires_us"] = self.expires_us
        if call.attempt.number:
            said["args"] = msgspec.Raw(call.args_node)
        return Note(Kind.QUESTION_ASKED, said)

    def _row(self, call: StepCall, run_id: str, number: int, at_us: int) -> Question:
        body = {
            "effect": call.spec.name,
            "step": call.key,
            "digest": _digest(call),
            "generation": self.generation,
            "key": call.idempotency_key,
            "expires_us": self.expires_us,
        }
        return Question(
            run_id,
            APPROVE + call.key,
            number,
            "approval",
            self.to,
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
        keys = key_change(call, "not_done") if call.attempt.number else []
        yield Append(call, [note], changes=[*keys, *taken])
        raise refusal(call, note.facts)
    error = note.facts["error"]
    said = {"error": error, "final": True, "unknown": True, **message_facts(message)}
    failed = Note(Kind.STEP_FAILED, said, ends_attempt=True)
    yield Append(call, [failed], changes=[*key_change(call, "in_doubt"), *taken])
    raise step_failed(call, error, call.attempt.number, run_id, unknown=True)
