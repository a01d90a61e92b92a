"""Questions to people, written once.

A question is known by its run and its name, so that an answer can be given before it is asked. It
has a number: how often it was answered before, plus one. The id of an answer is made of both, and a
message id is unique per run; so the first answer that is committed is the only one.

    question_asked ─┬─ answered ──────► question_answered, the question is closed
                    ├─ refused ───────► question_answered, and the flow gets Rejected
                    ├─ does not fit ──► message_discarded, and it is open under the next number
                    └─ time is over ──► wait_timed_out; the question stays open, and asking
                                        again by this name goes on with it
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from holdfast._engine.journal.changes import CloseQuestion, OpenQuestion, TakeMessage
from holdfast._engine.journal.entries import Kind
from holdfast._engine.journal.history import History
from holdfast._engine.journal.rows import Message, Question
from holdfast._engine.journal.step_record import Record, State
from holdfast._engine.scripts.inbox_messages import (
    ANSWER,
    message_facts,
    misfit,
    refusal,
    refusal_in,
    refused_before,
    refused_note,
    why_not,
)
from holdfast._engine.scripts.requests import (
    Append,
    Await,
    Decode,
    Note,
    Now,
    Script,
    StepCall,
    StoreRead,
    Wrote,
)
from holdfast._engine.scripts.step_script import find
from holdfast._engine.scripts.waits import received, timed_out, until
from holdfast.errors import ClassChanged

NO_DEFAULT: Any = object()


class FindQuestion(StoreRead):
    """Ask for the number under which the run asks people next by this name, and for the question of
    that name if it is open; sends back `FoundQuestion`."""

    name: str


class FoundQuestion(msgspec.Struct):
    """How often it was answered, plus one; and its open row."""

    number: int
    open: Question | None


class Asking(msgspec.Struct):
    """A question, as the flow asks it."""

    name: str
    text: str
    to: str | None = None
    choices: list[Any] | None = None
    schema: dict[str, Any] | None = None
    """The JSON schema of the wanted type, to check an answer without the class."""

    def note(self, number: int, until_us: int | None) -> Note:
        """Return the entry that says that it is asked."""
        said: dict[str, Any] = {"name": self.name, "number": number, "text": self.text}
        more = {"to": self.to, "choices": self.choices, "until_us": until_us}
        return Note(
            Kind.QUESTION_ASKED, said | {name: it for name, it in more.items() if it is not None}
        )

    def row(
        self, call: StepCall, run_id: str, number: int, at_us: int, until_us: int | None
    ) -> Question:
        """Return its row, as people see it while it is open."""
        body = {
            "text": self.text,
            "step": call.key,
            "choices": self.choices,
            "schema": self.schema,
        }
        return Question(
            run_id,
            self.name,
            number,
            "question",
            self.to,
            msgspec.json.encode(body),
            at_us,
            until_us,
        )


def ask_script(
    call: StepCall,
    history: History,
    asking: Asking,
    timeout_us: int | None,
    default: Any,
    read: Callable[[bytes], Any],
    decode: Decode,
) -> Script:
    """Ask a person and return the answer; one that was given before is taken at once."""
    what = f"an answer to question {asking.name!r}"
    record = find(call, history)
    if record is not None and record.has_outcome:
        return _answered_before(call, record, what, decode)
    found: FoundQuestion = yield FindQuestion(asking.name)
    number = found.number
    until_us = until(record)
    if record is None or found.open is None:
        now_us: int = yield Now()
        if record is None and timeout_us is not None:
            until_us = now_us + timeout_us
        row = asking.row(call, history.run_id, number, now_us, until_us)
        yield Append(call, [asking.note(number, until_us)], changes=[OpenQuestion(row)])
    while True:
        message: Message | None = yield Await(call, until_us, ANSWER + asking.name)
        if message is None:
            return (yield from _nobody_answered(call, what, default))
        reason = refusal_in(message)
        if reason is not None:
            note = refused_note(call, message, reason)
            yield Append(
                call, [note], changes=[TakeMessage(message.message_id), CloseQuestion(asking.name)]
            )
            raise refusal(call, note.facts)
        try:
            note = Note(
                Kind.QUESTION_ANSWERED, message_facts(message), {"value": read(message.body)}
            )
            wrote: Wrote = yield Append(
                call, [note], changes=[TakeMessage(message.message_id), CloseQuestion(asking.name)]
            )
        except Exception as error:
            if isinstance(error, ClassChanged) and error.today is not None:
                raise  # A class of ours that was changed: the message waits for its upgrade.
            number += 1
            now_us = yield Now()
            row = asking.row(call, history.run_id, number, now_us, until_us)
            note = misfit(message, why_not(error))
            yield Append(call, [note], changes=[TakeMessage(message.message_id), OpenQuestion(row)])
        else:
            return wrote.value


def _nobody_answered(call: StepCall, what: str, default: Any) -> Script:
    if default is NO_DEFAULT:
        return (yield from timed_out(call, what))
    wrote: Wrote = yield Append(
        call, [Note(Kind.WAIT_TIMED_OUT, {"what": what}, {"value": default})]
    )
    return wrote.value


def _answered_before(call: StepCall, record: Record, what: str, decode: Decode) -> Any:
    if record.state is State.FAILED and record.outcome is not None:
        raise refused_before(call, record.outcome)
    return received(call, record, what, decode)
