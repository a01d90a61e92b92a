"""Commands for messages to runs: questions, answer, approve, reject, signal."""

from __future__ import annotations

import shlex
from typing import Any

import click
import msgspec

from holdfast._engine.command_lines import command as command_line
from holdfast._engine.journal.step_keys import APPROVE
from holdfast._engine.text import brief_json, clipped, length, visible
from holdfast._operator.act import message_actions
from holdfast._operator.cli.decision_commands import goes_on_text, of_a_block
from holdfast._operator.cli.session import Session, command, takes
from holdfast._operator.explain.open_waits import other_names, similar_questions
from holdfast._operator.read import question_views
from holdfast._operator.read.answer_schema import misfit, type_in_words, wants_text
from holdfast._operator.read.question_views import QuestionView
from holdfast._operator.read.run_views import RunView
from holdfast._stores import readable_values
from holdfast._stores.addresses import NoStore
from holdfast._stores.lookups import existing_row
from holdfast.errors import UsageError


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    command(group, "questions", pages=True)(_questions)
    command(group, "answer", acts=True)(_answer)
    command(group, "approve", acts=True)(_approve)
    command(group, "reject", acts=True)(_reject)
    command(group, "signal", acts=True)(_signal)


# -- questions ---------------------------------------------------------------------------------


@click.option("--to", metavar="WHO", help="Only questions to this person or group.")
@click.option("--run", "run_id", metavar="RUN_ID", help="Only questions of this run.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
@click.option("--after", metavar="CURSOR", help="The page that follows; --json has it as `next`.")
def _questions(
    session: Session, to: str | None, run_id: str | None, limit: int, after: str | None
) -> None:
    """List open questions and approvals, oldest first, with the commands that answer them.

    An approval shows the stored arguments of its effect, and their digest.
    """
    try:
        store = session.store()
    except NoStore as missing:
        if session.as_json:
            session.answer(questions=[], next=None)
        else:
            session.say(f"No questions: {missing}.")
        return
    bad: list[question_views.Unreadable] = []
    asked = question_views.questions(
        store, to=to, run_id=run_id, limit=limit, after=after, plain=True, unreadable=bad
    )
    for it in bad:
        session.note(f"Run {it.run_id} cannot be read: {it.error}")
    if session.as_json:
        session.answer(questions=[_data(session, it) for it in asked], next=asked.next)
        return
    if not asked:
        session.say("No questions are open.")
    for question in asked:
        _print_question(session, question, store.now_us())
    if asked.next is not None:
        session.say(f"More follow: --after {shlex.quote(asked.next)}, or a larger --limit.", "dim")


def _data(session: Session, question: QuestionView) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(question)
    return told | {"commands": [session.pasteable(each) for each in question.commands]}


def _print_question(session: Session, question: QuestionView, now_us: int) -> None:
    since = length(max(0.0, now_us / 1e6 - question.asked_at.timestamp()))
    whom = f" asks {question.to}" if question.to else " asks"
    session.say(f"Run {question.run_id}{whom}, since {since}: {clipped(question.text)}", "bold")
    if question.kind == "approval":
        session.say(f"  arguments  {_arguments(question)}")
        session.say(f"  digest     {question.digest}")
        if question.holds_s is not None:
            session.say(f"  valid for  {length(question.holds_s)} after approval")
    if question.choices is not None:
        session.say(f"  choices    {brief_json(question.choices)}")
    elif (kind := type_in_words(question.schema)) is not None:
        session.say(f"  answer     {kind}")
    if question.until is not None:
        session.say(f"  until      {question.until:%Y-%m-%d %H:%M:%S} UTC")
    for each in question.refused:
        session.say(f"  refused    {each}", "yellow")
    for each in question.commands:
        session.say(f"    {session.pasteable(each)}")
    session.say()


def _arguments(question: QuestionView) -> str:
    return clipped(visible(readable_values.on_one_line(question.args_text or "null")))


# -- answering ---------------------------------------------------------------------------------


@takes("answer")
def _answer(session: Session, value: str, **asked: Any) -> None:
    """NAME is the name of the question, as `holdfast questions` shows it. VALUE is JSON; quotes
    around a string or a date are optional. The first answer counts.
    """
    open_ones = question_views.questions(
        session.store(), run_id=asked["run_id"], limit=10_000, plain=True
    )
    question = next((it for it in open_ones if it.name == asked["name"]), None)
    told = session.act("answer", {**asked, "value": read(value, question)})
    _tell(session, told, "answer", value, values=3)


def read(text: str, question: QuestionView | None) -> Any:
    """Parse a typed answer. A question that accepts a string takes the text with or without quotes;
    otherwise the answer is JSON if it is valid and fits the question."""
    try:
        value = msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    if question is None:
        return value
    if question.choices is not None:
        return text if text in question.choices else value
    if wants_text(question.schema):
        return value if isinstance(value, str) else text
    fits = misfit(value, None, question.schema) is None
    return value if fits or misfit(text, None, question.schema) is not None else text


@takes("approve")
@click.option("--yes", is_flag=True, help="Do not show the arguments and ask first.")
def _approve(session: Session, digest: str | None, yes: bool, **asked: Any) -> int | None:
    """The approval holds for exactly the stored arguments. Without --digest (which `holdfast
    questions` prints), the command shows them and asks you. Without a terminal, and with --json,
    give --digest or --yes.
    """
    run_id, step = asked["run_id"], asked["step"]
    store = session.store()
    if digest is None and not yes:
        digest = ""  # Never approve arguments that were not shown.
        for question in question_views.questions(store, run_id=run_id, limit=10_000, plain=True):
            if question.kind == "approval" and question.name == step.removeprefix(APPROVE):
                if not session.as_json:
                    _print_question(session, question, store.now_us())
                digest = question.digest
        shows = command_line("questions", "--run", run_id)
        instead = f"--digest DIGEST, which `{shows}` shows, or --yes"
        if digest and not session.confirmed(f"Approve {step}?", instead):
            return None
    _tell(session, session.act("approve", {**asked, "digest": digest}), "approve")
    return None


@takes("reject")
def _reject(session: Session, **asked: Any) -> None:
    """The flow receives Rejected. NAME is the name of the question, or the step of the approval, as
    `holdfast questions` shows it.
    """
    reason = asked["reason"]
    told = session.act("reject", asked)
    _tell(session, told, "reject", *(("--reason", reason) if reason else ()))


@takes("signal")
def _signal(session: Session, value: str | None, **asked: Any) -> None:
    """The run receives it with wait_for_signal(NAME). VALUE is JSON; anything else, such as a word,
    is a string. An early signal is kept.
    """
    store, run_id, name = session.store(), asked["run_id"], asked["name"]
    sent = session.act("signal", {**asked, "value": None if value is None else _payload(value)})
    other = other_names(store, run_id, "signal", name) if sent.new else None
    if session.as_json:
        session.answer(signal=msgspec.to_builtins(sent), note=other)
        return
    if sent.new:
        session.say(f"Signal {name} is kept for run {run_id} (id {sent.id}).")
    else:
        session.say(f"Signal {name} with id {sent.id} was sent before; it is not delivered again.")
    if other is not None:
        session.say(f"{other}.", "yellow")


def _payload(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        if not text.startswith(("{", "[", '"')):
            return text
        raise UsageError(
            f"{text[:60]!r} begins like JSON but is not valid JSON ({error}); such a string needs "
            """quotes, as in '"[sent]"'"""
        ) from None


def _tell(
    session: Session,
    told: message_actions.Answered,
    name_of_command: str,
    *said: str,
    values: int | None = None,
) -> None:
    """Print the result of an answer; without a matching question, suggest the similar ones."""
    store = session.store()
    other = other_names(store, told.run_id, "question", told.name) if told.early else None
    if session.as_json:
        session.answer(answer=msgspec.to_builtins(told), note=other)
        return
    if other is not None:
        warning = (
            f"WARNING  Run {told.run_id} has no open question {told.name!r}: nothing is answered."
        )
        session.say(warning, "bold yellow")
    session.say(f"{told.did}.")
    if other is not None:
        session.say(f"{other}.", "yellow")
        nouns = ("question", "approval") if name_of_command == "reject" else ("question",)
        for name in similar_questions(store, told.run_id, told.name, nouns):
            line = command_line(name_of_command, told.run_id, name, *said, values=values)
            session.say(f"If {name!r} is meant:")
            session.say(f"  {session.pasteable(line)}")
    if told.held is not None:
        session.say("The run stays held. It has the answer when it continues. To see it:")
    elif told.early:
        session.say("To see the run:")
    else:
        session.say(f"{_who_goes_on(session, told.run_id)} To see it:")
    session.say(f"  {session.pasteable(command_line('explain', told.run_id))}")


def _who_goes_on(session: Session, run_id: str) -> str:
    """Return which process uses an answer; for a block that is its own script, never a worker."""
    store = session.store()
    row = existing_row(store, run_id)
    if not of_a_block(session, row):
        return "The process that has the run, or a worker with its flow, goes on."
    if row.owner is None or store.owner_is_dead(row.owner):
        return goes_on_text("goes on with", or_so=False)
    return "The process that has the run goes on."


# -- messages in `show` ------------------------------------------------------------------------


def print_signals(session: Session, run: RunView) -> None:
    """Print the messages that a run received."""
    if not run.signals:
        return
    session.say()
    for each in run.signals:
        why = f": {each.why}" if each.why else ""
        session.say(
            f"{each.kind} {each.name} from {each.actor} {each.status}{why}  {brief_json(each.value, 80)}",
            "yellow" if each.status in ("expired", "refused") else "dim",
        )
