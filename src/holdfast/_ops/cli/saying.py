"""Commands by which people talk to runs: questions, answer, approve, signal."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast._core.commands import command as command_line
from holdfast._ops import people, signals
from holdfast._ops.cli.session import Session, command
from holdfast._ops.inspect import RunView
from holdfast._ops.people import QuestionView
from holdfast._ops.text import clipped, length, shown
from holdfast._store.addresses import NoStore
from holdfast.errors import UsageError


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    command(group, "questions")(_questions)
    command(group, "answer", acts=True)(_answer)
    command(group, "approve", acts=True)(_approve)
    command(group, "signal", acts=True)(_signal)


# -- questions ---------------------------------------------------------------------------------


@click.option("--to", metavar="WHO", help="Only what is asked of them.")
@click.option("--run", "run_id", metavar="RUN_ID", help="Only what this run asks.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
def _questions(session: Session, to: str | None, run_id: str | None, limit: int) -> None:
    """List what runs ask people, oldest first, with the commands that answer.

    Approvals are among them: they show the stored arguments of the effect, and their digest.
    """
    try:
        store = session.store()
    except NoStore as missing:
        if session.as_json:
            session.answer(questions=[])
        else:
            session.say(f"No questions: {missing}.")
        return
    asked = people.questions(store, to=to, run_id=run_id, limit=limit, plain=True)
    if session.as_json:
        session.answer(questions=[_data(session, question) for question in asked])
        return
    if not asked:
        session.say("No questions are open.")
    for question in asked:
        _print_question(session, question, store.now_us())
    if len(asked) == limit:
        session.say(f"The oldest {limit}; more with --limit.", "dim")


def _data(session: Session, question: QuestionView) -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(question)
    return told | {"commands": [session.pasteable(each) for each in question.commands]}


def _print_question(session: Session, question: QuestionView, now_us: int) -> None:
    since = length(max(0.0, now_us / 1e6 - question.asked_at.timestamp()))
    whom = f" asks {question.to}" if question.to else " asks"
    session.say(f"Run {question.run_id}{whom}, since {since}: {clipped(question.text)}", "bold")
    if question.kind == "approval":
        session.say(f"  arguments  {shown(question.args)}")
        session.say(f"  digest     {question.digest}")
        if question.holds_s is not None:
            session.say(f"  holds for  {length(question.holds_s)} once it is given")
    if question.choices is not None:
        session.say(f"  choices    {shown(question.choices)}")
    if question.until is not None:
        session.say(f"  until      {question.until:%Y-%m-%d %H:%M:%S} UTC")
    for each in question.commands:
        session.say(f"    {session.pasteable(each)}")
    session.say()


# -- answering ---------------------------------------------------------------------------------


@click.argument("run_id")
@click.argument("name")
@click.argument("value", required=False)
@click.option(
    "--refuse",
    metavar="[REASON]",
    is_flag=False,
    flag_value="",
    help="Refuse instead: the flow gets Refused.",
)
def _answer(
    session: Session, run_id: str, name: str, value: str | None, refuse: str | None, actor: str
) -> None:
    """Answer a question of a run, or refuse it (or an approval).

    NAME is the name of the question, or the step of an approval, as `holdfast questions` shows it. VALUE
    is JSON, or a text as it is where a text is asked for. The first answer counts.
    """
    store = session.store()
    if (value is None) == (refuse is None):
        raise UsageError("say VALUE, or --refuse and a reason")
    if refuse is not None:
        told = people.refuse(store, run_id, name, reason=refuse, actor=actor)
    else:
        assert value is not None
        asked = people.questions(store, run_id=run_id, limit=10_000, plain=True)
        question = next((it for it in asked if it.name == name), None)
        told = people.answer(store, run_id, name, read(value, question), actor=actor)
    _tell(session, told)


def read(text: str, question: QuestionView | None) -> Any:
    """Return an answer as it was typed: a text where one is asked for, else JSON if it is some."""
    if question is not None:
        wants_text = (question.schema or {}).get("type") == "string"
        if (question.choices and text in question.choices) or wants_text:
            return text
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


@click.argument("run_id")
@click.argument("step")
@click.option("--digest", metavar="HEX", help="Only if this is the digest of the arguments.")
@click.option("--yes", is_flag=True, help="Do not show the arguments and ask first.")
def _approve(
    session: Session, run_id: str, step: str, digest: str | None, yes: bool, actor: str
) -> int | None:
    """Approve one call of an effect, with exactly the arguments that are stored.

    Without --digest (which `holdfast questions` prints) they are shown, and you are asked. To refuse:
    holdfast answer RUN_ID STEP --refuse REASON.
    """
    store = session.store()
    if digest is None and not yes and not session.as_json:
        asked = people.questions(store, run_id=run_id, limit=10_000, plain=True)
        for question in asked:
            if question.kind == "approval" and question.name == step:
                _print_question(session, question, store.now_us())
                digest = question.digest
        if digest is not None and not click.confirm(f"Approve {step}?", err=True):
            return None
    _tell(session, people.approve(store, run_id, step, digest=digest, actor=actor))
    return None


@click.argument("run_id")
@click.argument("name")
@click.argument("payload", required=False, metavar="[JSON]")
@click.option(
    "--id", "signal_id", metavar="ID", help="Sent again under this id, it is not repeated."
)
def _signal(
    session: Session,
    run_id: str,
    name: str,
    payload: str | None,
    signal_id: str | None,
    actor: str,
) -> None:
    """Send a signal to a run, which takes it with wait(NAME); kept if it comes early."""
    value = None
    if payload is not None:
        try:
            value = msgspec.json.decode(payload)
        except msgspec.DecodeError as error:
            raise UsageError(
                f"""the payload is JSON, and {payload[:60]!r} is none ({error}); a text needs its """
                """quotes, as in '"sent"'"""
            ) from None
    sent = signals.signal(session.store(), run_id, name, value, signal_id=signal_id, actor=actor)
    if session.as_json:
        session.answer(signal=msgspec.to_builtins(sent))
    elif sent.new:
        session.say(f"Signal {name} is kept for run {run_id} (id {sent.id}).")
    else:
        session.say(f"Signal {name} with id {sent.id} was sent before; it is not delivered again.")


def _tell(session: Session, told: people.Answered) -> None:
    if session.as_json:
        session.answer(answer=msgspec.to_builtins(told))
        return
    session.say(f"{told.did}.")
    session.say("The process that has the run, or a worker with its flow, goes on. To see it:")
    session.say(f"  {session.pasteable(command_line('explain', told.run_id))}")


# -- what `show` says --------------------------------------------------------------------------


def print_signals(session: Session, run: RunView) -> None:
    """Print what was said to a run."""
    if not run.signals:
        return
    session.say()
    for each in run.signals:
        why = f": {each.why}" if each.why else ""
        session.say(
            f"{each.kind} {each.name} from {each.actor} {each.status}{why}  {shown(each.value, 80)}",
            "yellow" if each.status in ("expired", "refused") else "dim",
        )
