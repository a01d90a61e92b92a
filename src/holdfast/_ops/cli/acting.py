"""Commands that decide: settle, resume. They record; a process that has the flow carries it out."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast._core.commands import command as command_line
from holdfast._core.effects import NOT_DONE, Done, Fail
from holdfast._ops import actions
from holdfast._ops.cli.session import Session, command
from holdfast._ops.inspect import found
from holdfast.errors import UsageError


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    command(group, "settle", acts=True)(_settle)
    command(group, "resume", acts=True)(_resume)


@click.argument("run_id")
@click.argument("step")
@click.option("--done", metavar="JSON", help="It happened; this is its result.")
@click.option("--not-done", is_flag=True, help="It did not happen: it will be executed.")
@click.option("--fail", metavar="REASON", help="Give it up: the flow gets StepFailed.")
def _settle(
    session: Session,
    run_id: str,
    step: str,
    done: str | None,
    not_done: bool,
    fail: str | None,
    actor: str,
) -> None:
    """Settle an effect that is in doubt.

    STEP is the step key, as `holdfast explain RUN_ID` shows it. Say exactly one of --done, --not-done
    and --fail. The result given to --done is plain JSON; a result of a class of yours is settled from
    Python: store.settle(run_id, step, Done(value), actor=…).
    """
    decision = _decision(done, fail, not_done=not_done)
    _tell(session, actions.settle(session.store(), run_id, step, decision, actor=actor))


def _decision(done: str | None, fail: str | None, *, not_done: bool) -> actions.Decision:
    if (done is not None) + (fail is not None) + not_done != 1:
        raise UsageError("say exactly one of --done JSON, --not-done and --fail REASON")
    if done is not None:
        return Done(parsed("--done", done))
    return NOT_DONE if fail is None else Fail(fail)


def parsed(option: str, text: str) -> Any:
    """Return what an option says in JSON."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{option} takes JSON, and {text[:60]!r} is none ({error}); a text needs its quotes, "
            f"""as in {option} '"sent"'"""
        ) from None


@click.argument("run_id")
@click.option("--accept-change", is_flag=True, help="Go on with code that was changed meanwhile.")
@click.option(
    "--confirm",
    is_flag=True,
    help="Yes, although it is about effects: execute again one that may have happened; with "
    "--accept-change, leave out one that has happened.",
)
def _resume(session: Session, run_id: str, accept_change: bool, confirm: bool, actor: str) -> None:
    """Take up a run that failed or is held."""
    answer = actions.resume(
        session.store(), run_id, actor=actor, accept_change=accept_change, confirm=confirm
    )
    _tell(session, answer)


def _go_on(session: Session, answer: actions.Answer) -> list[str]:
    """Return the commands that execute the run, and those that were freed with it."""
    flows = {answer.run_id: answer.flow}
    for run_id in answer.freed:
        flows[run_id] = found(session.store(), run_id).flow
    return [
        session.pasteable(command_line("run", f"MODULE:{flow}", run_id))
        for run_id, flow in flows.items()
    ]


def _tell(session: Session, answer: actions.Answer) -> None:
    go_on = _go_on(session, answer)
    if session.as_json:
        told = msgspec.to_builtins(answer)
        session.answer(answer=told, next=go_on if answer.goes_on else [])
        return
    session.say(f"{answer.did}.")
    if answer.freed:
        session.say(f"Freed with it: {', '.join(answer.freed)}.")
    if answer.effects:
        session.say(
            "Effects that have happened: "
            f"{', '.join(answer.effects)}. If the changed code calls one of them under another key, "
            "it is executed again."
        )
    if answer.goes_on:
        session.say(
            "A process that has its flow goes on with it. If none is running, run your program again, "
            "or:"
        )
        for line in go_on:
            session.say(f"  {line}")
    elif answer.status == "held":
        session.say("It is still held; see why:")
        session.say(f"  {session.pasteable(command_line('explain', answer.run_id))}")
