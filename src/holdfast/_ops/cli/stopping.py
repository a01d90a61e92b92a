"""Commands that stop a run on purpose: cancel, pause."""

from __future__ import annotations

import click
import msgspec

from holdfast._core.commands import command as command_line
from holdfast._core.control import Stopped
from holdfast._ops import control
from holdfast._ops.cli.session import BUSY, CANCELLED, FAILED, HELD, OK, Session, command
from holdfast._ops.text import count

_ENDED = {"completed": OK, "failed": FAILED, "rolled_back": CANCELLED, "cancelled": CANCELLED}


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    command(group, "cancel", acts=True)(_cancel)
    command(group, "pause", acts=True)(_pause)


_reason = click.option("--reason", default="", help="Why, for those who read the journal.")
_wait = click.option(
    "--wait",
    "wait_s",
    metavar="SECONDS",
    type=click.FloatRange(0),
    default=control.PATIENCE_S,
    show_default=True,
    help="How long to wait for the process that has the run.",
)


@click.argument("run_id")
@_reason
@_wait
def _cancel(session: Session, run_id: str, reason: str, wait_s: float, actor: str) -> int:
    """Cancel a run, and its children with it.

    What is executing at this moment comes to its end and is recorded. The answer is the truth: the
    run is cancelled; or it had ended before (exit code 0 if it completed, 8 if it was rolled back);
    or the cancel is pending: 5 if a live process still has the run, 3 if an effect is in doubt and
    has to be settled first.
    """
    answer = control.cancel(session.store(), run_id, actor=actor, reason=reason, wait_s=wait_s)
    return _tell(session, answer, f"Run {run_id} is cancelled")


@click.argument("run_id")
@_reason
@_wait
def _pause(session: Session, run_id: str, reason: str, wait_s: float, actor: str) -> int:
    """Hold a run until somebody resumes it.

    What is executing at this moment comes to its end and is recorded. Children go on. Signals and
    answers that come meanwhile are kept. Exit code 5: asked for, and a live process still has it.
    """
    answer = control.pause(session.store(), run_id, actor=actor, reason=reason, wait_s=wait_s)
    return _tell(session, answer, f"Run {run_id} is paused")


def _tell(session: Session, answer: Stopped, done: str) -> int:
    code = _code(answer)
    go_on = _next(session, answer)
    if session.as_json:
        session.answer(answer=msgspec.to_builtins(answer), next=go_on, exit_code=code)
        return code
    if answer.outcome in ("cancelled", "paused"):
        also = f"; {answer.detail}" if answer.detail else ""
        session.say(f"{done}{also}.")
    elif answer.outcome == "finished":
        session.say(f"Nothing was changed: run {answer.run_id} had ended before, {answer.detail}.")
    else:
        session.say(f"Not yet: {answer.detail}.", "yellow")
    if answer.children and answer.outcome == "cancelled":
        session.say(
            f"{count(len(answer.children), 'child', 'children')} cancelled with it, or told."
        )
    for each in go_on:
        session.say(f"  {each}")
    return code


def _next(session: Session, answer: Stopped) -> list[str]:
    if answer.outcome == "paused":
        return [session.pasteable(command_line("resume", answer.run_id))]
    if answer.outcome == "pending":
        return [session.pasteable(command_line("explain", answer.run_id))]
    return []


def _code(answer: Stopped) -> int:
    if answer.outcome in ("cancelled", "paused"):
        return OK
    if answer.outcome == "pending":
        return HELD if answer.status == "held" else BUSY
    return _ENDED[answer.status]
