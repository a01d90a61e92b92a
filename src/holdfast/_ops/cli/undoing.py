"""The command `rollback`: undo what a run did. It shows the plan, and records the decision."""

from __future__ import annotations

import click
import msgspec

from holdfast._ops import rollback
from holdfast._ops.cli.acting import goes_on_text, run_line
from holdfast._ops.cli.session import OK, Session, command


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "rollback", acts=True)(_rollback)


@click.argument("run_id")
@click.option("--to", metavar="STEP", help="Only what came after this step, which stays.")
@click.option("--reason", default="", help="Why, for those who read the journal.")
@click.option("--plan", "only_plan", is_flag=True, help="Show what would be undone, and stop.")
@click.option("--yes", is_flag=True, help="Do not ask; what cannot be undone stays as it is.")
def _rollback(
    session: Session,
    run_id: str,
    to: str | None,
    reason: str,
    only_plan: bool,
    yes: bool,
    actor: str,
) -> int:
    """Undo what a run did, the last effect first.

    The undo functions of its effects are called by a process that has the flow. With --to, what
    came after that step is undone, and the run is held (paused) until somebody resumes it: then the
    rest is executed anew.
    """
    store = session.store()
    plan = rollback.plan(store, run_id, to)
    if only_plan:
        if session.as_json:
            session.answer(plan=plan, answer=None, next=[])
        else:
            session.say(str(plan))
        return OK
    if not session.as_json:
        session.say(str(plan))
    if not yes and not session.confirmed(_question(plan), "--yes, or --plan to see what it undoes"):
        session.say("Nothing was changed.")
        return OK
    answer = rollback.rollback(store, run_id, actor=actor, reason=reason, to=to, confirm=True)
    run = run_line(session, run_id)
    go_on = [run] if answer.goes_on and run is not None else []
    if session.as_json:
        session.answer(plan=plan, answer=msgspec.to_builtins(answer), next=go_on)
        return OK
    session.say(f"{answer.did}.")
    if answer.goes_on:
        session.say(goes_on_text("performs", or_so=bool(go_on)))
        for line in go_on:
            session.say(f"  {line}")
    return OK


def _question(plan: rollback.RollbackPlan) -> str:
    if plan.confirm:
        return "Some of it cannot be undone. Roll it back all the same?"
    return "Roll it back?"
