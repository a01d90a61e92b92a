"""Explain the open waits of a run: for what, since when, until when, for whom, and what ends them."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection
from typing import Any

import msgspec

from holdfast._engine.journal.entries import WAIT_ENDS, Entry, Kind
from holdfast._engine.journal.history import History, Record, State
from holdfast._engine.journal.rows import Message
from holdfast._engine.journal.step_keys import APPROVE
from holdfast._engine.journal.step_record import facts
from holdfast._engine.scripts.inbox_messages import SIGNAL, answer_id
from holdfast._engine.text import brief_json, clipped, count, moment
from holdfast._engine.values.durations import as_text
from holdfast._features.operator_side import Wait
from holdfast._operator.explain.child_runs import about_children
from holdfast._operator.explain.run_case import RunCase
from holdfast._operator.read.answer_schema import type_in_words
from holdfast._operator.read.message_views import did_not_fit, messages_of
from holdfast._operator.read.question_views import QuestionView, questions
from holdfast._operator.read.relatives import deadline_us
from holdfast._operator.read.run_views import fold
from holdfast._operator.read.step_views import error_of
from holdfast._stores.contract import Store
from holdfast._stores.lookups import existing_row


def waiting(past: History) -> list[tuple[Record, Entry]]:
    """Return the calls that wait for something outside, with the entry that says for what."""
    return [
        (record, record.begun)
        for record in past.records.values()
        if record.begun is not None and record.begun.kind in _ABOUT and _still_waits(record)
    ]


def _still_waits(record: Record) -> bool:
    """Return whether a wait is open: an approval is used up by the intent that comes after it."""
    if record.has_outcome or record.begun is None:
        return False
    return record.intent is None or record.intent.seq < record.begun.seq


def taken_up(case: RunCase, by: str = "a worker") -> str:
    """Report when a run without an owner goes on."""
    return "when its script is run again" if case.is_block else f"when {by} takes it"


def in_short(case: RunCase, *, nobody_has_it: bool) -> str:
    """Describe in a few words what a run waits for, or what came and is not taken yet."""
    row = case.row
    if come := [_message_text(message) for message in come_for(case)]:
        when = f" {taken_up(case, 'a process')}" if nobody_has_it else ""
        return f"has {' and '.join(come)}, and goes on{when}"
    what, _, name = (row.waiting_on or _asked_for(case) or "").partition(":")
    called = [it for it in waiting(case.past) if it[1].kind is Kind.CHILD_STARTED]
    if what == "child" and len(called) > 1:
        return f"waits for {len(called):,} children"
    until_us = row.wake_us
    until = "" if until_us is None or until_us == deadline_us(case.past) else moment(until_us)
    if what == "timer":
        again = [it.key for it in case.past.records.values() if it.state is State.RETRYING]
        does = f"waits before it tries {again[0]} again," if again else "sleeps"
        return f"{does} until {until}" if until else does.rstrip(",")
    if what == "answer" and name.startswith(APPROVE):
        told = f"an approval of {name.removeprefix(APPROVE)}"
    else:
        told = {"answer": "an answer to", "child": "its child, run", "signal": "the signal"}.get(
            what, what
        )
        told = f"{told} {name}".strip()
    return f"waits for {told}" + (f" until {until}" if until else "") if told else "waits"


def needs_people(case: RunCase) -> bool:
    """Return whether a run that was given back while it waited still needs an answer or a signal, or has
    it and was not taken up since."""
    return _asked_for(case) is not None


def _asked_for(case: RunCase) -> str | None:
    """Return what somebody is to give a run, in the form in which rows say it."""
    for _, begun in waiting(case.past):
        if begun.kind in _GIVEN:
            return f"{_GIVEN[begun.kind]}:{facts(begun)['name']}"
    return None


_GIVEN = {Kind.QUESTION_ASKED: "answer", Kind.SIGNAL_AWAITED: "signal"}


def come_for(case: RunCase) -> list[Message]:
    """Return what people have given a run that it waits for, and that it has not taken yet."""
    kept = case.store.inbox(case.row.run_no)
    asked = {it.name: answer_id(it.name, it.number) for it in case.store.questions(case.row.run_id)}
    come: list[Message] = []
    for _, begun in waiting(case.past):
        name = str(facts(begun).get("name"))
        if begun.kind is Kind.QUESTION_ASKED:
            come += [it for it in kept if it.message_id == asked.get(name)]
        elif begun.kind is Kind.SIGNAL_AWAITED:
            come += [it for it in kept if it.kind == f"{SIGNAL}{name}"][:1]
    return come


def is_spoken_to(case: RunCase) -> bool:
    """Return whether a message has come that the run has not looked at: it wakes the run at once,
    whatever time it waits for (`is_due`)."""
    return bool(case.store.inbox(case.row.run_no, case.row.heard or 0))


def _message_text(message: Message) -> str:
    noun, _, name = message.kind.partition(":")
    what = f"the signal {name}"
    if noun == "answer":
        refused = "refused" in msgspec.json.decode(message.body)
        approval = name.startswith(APPROVE)
        word = "refusal of" if refused else "approval of" if approval else "answer to"
        what = f"the {word} {name.removeprefix(APPROVE)}"
    return f"{what} from {clipped(message.actor)}"


def about_waits(case: RunCase) -> None:
    """Explain what each line of a run waits for, and which command ends that."""
    open_ones = {it.step: it for it in questions(case.store, run_id=case.row.run_id, plain=True)}
    lines = waiting(case.past)
    for record, begun in lines:
        _ABOUT[begun.kind](case, record, begun, open_ones.get(record.key))
    about_children(case, [line for line in lines if line[1].kind is Kind.CHILD_STARTED])
    for record in case.past.records.values():
        if record.state is State.RETRYING and not record.borrowed:
            _pause(case, record)


def is_approval(record: Record) -> bool:
    """Return whether a call asked for an approval before it was to be executed."""
    begun = record.begun
    if begun is None or begun.kind is not Kind.QUESTION_ASKED:
        return False
    return str(facts(begun)["name"]).startswith(APPROVE)


def about_end(record: Record) -> str | None:
    """Explain how a wait ended that the flow did not get over; None if it is no wait."""
    outcome = record.outcome
    if outcome is None or outcome.kind not in WAIT_ENDS:
        return None
    said = facts(outcome)
    if outcome.kind is Kind.WAIT_TIMED_OUT:
        return f"{record.key}: {said['what']} did not come in time."
    error = said.get("error")
    return None if error is None else f"{error['message']}."


def _pause(case: RunCase, record: Record) -> None:
    """A step that failed, and is tried again after a pause."""
    case.waits_for(Wait.RETRY)
    at_us = record.retry_at_us
    when = "" if at_us is None else f" at {moment(at_us)}"
    error = error_of(record)
    case.said.known.append(
        f"{record.key} failed {count(record.attempts, 'time')} so far and is tried again{when}. "
        f"The last error: {clipped(str(error))}."
    )
    case.said.unknown.append(f"Whether the next attempt of {record.key} does better.")


# -- one function per kind of wait -------------------------------------------------------------


def _timer(case: RunCase, record: Record, begun: Entry, _asked: QuestionView | None) -> None:
    case.waits_for(Wait.SLEEP)
    until_us = facts(begun)["until_us"]
    left_us = until_us - case.now_us
    left = f"in {as_text(left_us)}" if left_us > 0 else "its time has come"
    case.said.known.append(
        f"{record.key} sleeps until {moment(until_us)} ({left}), since {case.since(begun.at_us)}."
    )


def _signal(case: RunCase, record: Record, begun: Entry, _asked: QuestionView | None) -> None:
    case.waits_for(Wait.SIGNAL)
    said = facts(begun)
    case.said.known.append(
        f"{record.key} waits for the signal {said['name']!r} since {case.since(begun.at_us)}"
        f"{_until(said)}."
    )
    for message in messages_of(case.store, case.row, plain=True):
        if (message.kind, message.name, message.status) == ("signal", said["name"], "refused"):
            case.said.known.append(f"{did_not_fit(message)}.")
    if any(it.kind == f"{SIGNAL}{said['name']}" for it in come_for(case)):
        case.said.known.append(f"The signal {said['name']!r} has come; the run takes it next.")
        return
    case.said.unknown.append(f"Who is to send {said['name']!r}, and when: the flow does not say.")
    case.do(
        f"To send the signal {said['name']} (what it brings is up to the flow):",
        case.cmd("signal", said["name"]) + " VALUE",
    )


def _question(case: RunCase, record: Record, begun: Entry, asked: QuestionView | None) -> None:
    said = facts(begun)
    if said["name"].startswith(APPROVE):
        _approval(case, record, begun, asked)
        return
    case.waits_for(Wait.ANSWER)
    whom = f" {said['to']}" if "to" in said else ""
    case.said.known.append(
        f"{record.key} asks{whom} since {case.since(begun.at_us)}{_until(said)}: "
        f"{clipped(said['text'])}"
    )
    if asked is None:
        case.said.known.append(f"The question {said['name']!r} is decided; the run takes it next.")
        return
    if asked.choices is not None:
        case.said.known.append(f"The choices: {brief_json(asked.choices)}.")
    elif (kind := type_in_words(asked.schema)) is not None:
        case.said.known.append(f"The answer is {kind}.")
    for refused in asked.refused:
        case.said.known.append(f"{refused}.")
    case.said.unknown.append(_when_answered(said))
    *answers, refuse = asked.commands
    told = [f" with {clipped(text)}" for text in asked.offered] or [""]
    for choice, answer in zip(told, answers, strict=True):
        case.do(f"To answer {said['name']}{choice}:", answer)
    case.do("To refuse (the flow gets Rejected):", refuse)


def _when_answered(said: dict[str, Any]) -> str:
    whom = str(said["to"]) if "to" in said else "anybody"
    until_us = said.get("until_us")
    if until_us is None:
        return f"When {whom} answers; it waits until then."
    return f"Whether {whom} answers in time; at {moment(until_us)} the flow goes on without."


def _approval(case: RunCase, record: Record, begun: Entry, asked: QuestionView | None) -> None:
    case.waits_for(Wait.APPROVAL)
    said = facts(begun)
    whom = f" of {said['to']}" if "to" in said else ""
    case.said.known.append(
        f"{record.key} needs an approval{whom} before it is executed, since "
        f"{case.since(begun.at_us)}."
    )
    if asked is None:
        case.said.known.append(f"{record.key} is decided; the run takes that next.")
        return
    case.said.known.append(
        f"Its arguments: {brief_json(asked.args)}. Their digest: {asked.digest}."
    )
    if asked.holds_s is not None:
        holds = as_text(int(asked.holds_s * 1e6))
        case.said.known.append(f"An approval holds for {holds} once it is given.")
    case.said.unknown.append(_when_answered(said))
    if not record.attempts:
        case.said.known.append(f"Nothing of {record.key} has been executed.")
    approve, refuse = asked.commands
    case.do(f"To approve {record.key} with exactly these arguments, once:", approve)
    case.do("To refuse it (the flow gets Rejected):", refuse)


def _child(case: RunCase, _record: Record, _begun: Entry, _asked: QuestionView | None) -> None:
    case.waits_for(Wait.CHILD)  # All children are reported together: one cause may hold many.


def _until(said: dict[str, Any]) -> str:
    until_us = said.get("until_us")
    return "" if until_us is None else f", until {moment(until_us)}"


_ABOUT: dict[Kind, Callable[[RunCase, Record, Entry, QuestionView | None], None]] = {
    Kind.TIMER_SET: _timer,
    Kind.SIGNAL_AWAITED: _signal,
    Kind.QUESTION_ASKED: _question,
    Kind.CHILD_STARTED: _child,
}


# -- names that a run waits for -----------------------------------------------------------------


_NOUNS = {Kind.SIGNAL_AWAITED: "signal", Kind.QUESTION_ASKED: "question"}


def expected(store: Store, run_id: str) -> list[tuple[str, str]]:
    """Return what people can send a run now, sorted: "signal", "question" or "approval", and its name."""
    names: list[tuple[str, str]] = []
    for _, begun in waiting(fold(store, existing_row(store, run_id))):
        noun = _NOUNS.get(begun.kind)
        if noun is not None:
            name = str(facts(begun)["name"])
            names.append(
                ("approval", name.removeprefix(APPROVE))
                if name.startswith(APPROVE)
                else (noun, name)
            )
    return sorted(names)


def other_names(store: Store, run_id: str, noun: str, name: str) -> str | None:
    """Explain what a run waits for now, if that is something else than this."""
    names = expected(store, run_id)
    if not names or (noun, name) in names:
        return None
    told = ", ".join(f"{noun} {name!r}" for noun, name in names)
    return f"The run waits for {told} now"


def similar_questions(store: Store, run_id: str, name: str, nouns: Collection[str]) -> list[str]:
    """Return the question or approval that may have been meant by a name that a run does not ask:
    the only one that is open, or the one that is spelt most like it."""
    names = [asked for noun, asked in expected(store, run_id) if noun in nouns]
    return names if len(names) == 1 else difflib.get_close_matches(name, names, 1)
