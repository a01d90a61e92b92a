"""Messages as scripts read them: the contents of a signal or an answer, and its entry. Pure."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast._engine.journal.entries import Entry, Kind
from holdfast._engine.journal.rows import Message
from holdfast._engine.journal.step_record import facts
from holdfast._engine.scripts.attempts import error_facts, marked
from holdfast._engine.scripts.requests import Note, StepCall
from holdfast.errors import Rejected

SIGNAL = "signal:"
"""A message kind begins with its type; the rest is its addressee in the run."""
ANSWER = "answer:"


def message_facts(message: Message) -> dict[str, Any]:
    """Return what the entry that takes a message says of it."""
    return {"id": message.message_id, "actor": message.actor, "sent_us": message.at_us}


def misfit(message: Message, why: str) -> Note:
    """Return the entry that takes a message which the run cannot use: it is not lost, and the run
    goes on waiting."""
    return Note(Kind.MESSAGE_DISCARDED, {**message_facts(message), "why": why})


def why_not(error: Exception) -> str:
    """Return why the payload of a message cannot be used."""
    return error_facts(error)["message"] or type(error).__name__


# -- answers -----------------------------------------------------------------------------------


def answer_id(name: str, number: int) -> str:
    """Return the id of the message that answers a question: the same id for every sender."""
    return f"{ANSWER}{name}:{number}"


def next_number(was_taken: Callable[[str], bool], name: str) -> int:
    """Return the next number of a question: the first one whose answer no entry has taken. Answers
    are taken in the order of their numbers, so a binary search reads only few of them."""

    def is_over(number: int) -> bool:
        return was_taken(answer_id(name, number))

    beyond = 1
    while is_over(beyond):
        beyond *= 2
    numbers = range(beyond // 2 + 1, beyond + 1)
    return numbers[bisect.bisect_left(numbers, True, key=lambda number: not is_over(number))]


def refusal_in(message: Message) -> str | None:
    """Return the reason of a rejection, or None if the message is none."""
    data: dict[str, msgspec.Raw] = msgspec.json.decode(message.body, type=dict[str, msgspec.Raw])
    return msgspec.json.decode(data["refused"], type=str) if "refused" in data else None


def refused_note(call: StepCall, message: Message, reason: str) -> Note:
    """Return the entry that says that a person refused."""
    error = error_facts(Rejected(call.key, reason, message.actor))
    return Note(
        Kind.QUESTION_ANSWERED, {"refused": reason, **message_facts(message), "error": error}
    )


def refusal(call: StepCall, said: dict[str, Any]) -> BaseException:
    """Return the error that the flow gets."""
    return marked(Rejected(call.key, said["refused"], said["actor"]), call.key)


def refused_before(call: StepCall, outcome: Entry) -> BaseException:
    """Return the error of a recorded rejection."""
    return refusal(call, facts(outcome))
