"""Commands that record a decision about one run: settle, resume, cancel, pause, set-budget, rollback.

A process that has the flow performs the decision.
"""

from __future__ import annotations

from typing import Any

import click
import msgspec

from holdfast._engine.command_lines import command as command_line
from holdfast._engine.decisions import action_result
from holdfast._engine.decisions.control import Stopped
from holdfast._engine.journal.drift_record import Change
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.journal.step_record import is_block
from holdfast._engine.text import count
from holdfast._features.drift.comparison import ResumePreview
from holdfast._features.rollback import operator as rollback_views
from holdfast._operator.act import queue_admin
from holdfast._operator.cli.child_process import module_named
from holdfast._operator.cli.exit_codes import BUSY, CANCELLED, ERROR, FAILED, HELD, OK
from holdfast._operator.cli.session import Session, command, takes
from holdfast._operator.read import resume_preview
from holdfast._operator.read.run_views import fold
from holdfast._stores.lookups import existing_row
from holdfast.errors import UsageError

OBJECT = '{"name": "value"}'
"""An example of the value of an option that takes an object."""


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    command(group, "settle", acts=True)(_settle)
    command(group, "resume", acts=True, pages=True)(_resume)
    command(group, "set-budget", acts=True)(_set_budget)
    command(group, "cancel", acts=True)(_cancel)
    command(group, "pause", acts=True)(_pause)
    command(group, "rollback", acts=True)(_rollback)


@takes("settle", but=("outcome", "result", "reason", "confirm"))
@click.option("--done", metavar="JSON", help="The effect happened; this is its result.")
@click.option("--not-done", is_flag=True, help="The effect did not happen; execute it.")
@click.option("--fail", metavar="REASON", help="Give up: the flow receives StepFailed.")
def _settle(
    session: Session, done: str | None, not_done: bool, fail: str | None, **asked: Any
) -> None:
    """STEP is the step key that `holdfast explain RUN_ID` shows. Give exactly one of --done,
    --not-done and --fail. The value of --done is plain JSON. To settle with an object of your own
    class, use Python: store.settle(run_id, step, Done(value), actor=…).
    """
    run_id, step = asked["run_id"], asked["step"]
    outcome = _outcome(done, fail, not_done=not_done)
    try:
        spelled = {"result": "--done", "reason": "--fail"}
        answer = session.act("settle", {**asked, **outcome}, options=spelled)
    except UsageError as error:
        key = _similar_step(session, run_id, step)
        if key is None:
            raise
        how = ["--not-done"] if not_done else ["--done", done] if fail is None else ["--fail", fail]
        line = command_line("settle", run_id, key, *(str(word) for word in how))
        raise UsageError(f"{error}. If {key} is meant: {line}") from None
    tell(session, answer)


def _similar_step(session: Session, run_id: str, step: str) -> str | None:
    """Return the only step in doubt whose key ends with this call id, typed without the tool's
    name."""
    store = session.store()
    open_ones = fold(store, existing_row(store, run_id)).open_doubts()
    keys = [it.key for it in open_ones if it.key.endswith((f":{step}", f"/{step}"))]
    return keys[0] if len(keys) == 1 else None


def _outcome(done: str | None, fail: str | None, *, not_done: bool) -> dict[str, Any]:
    if (done is not None) + (fail is not None) + not_done != 1:
        raise UsageError("give exactly one of --done JSON, --not-done and --fail REASON")
    if done is not None:
        return {"outcome": "done", "result": parsed("--done", done)}
    if fail is not None:
        return {"outcome": "failed", "reason": fail}
    return {"outcome": "not_done", "confirm": True}


def parsed(option: str, text: str, like: str = "") -> Any:
    """Parse the JSON value of an option. `like` is an example for options that do not accept a
    string."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError as error:
        advice = (
            f"as in {option} '{like}'"
            if like
            else f"""a string needs its quotes, as in {option} '"sent"'"""
        )
        raise UsageError(
            f"{option} takes JSON, and {text[:60]!r} is not JSON ({error}); {advice}"
        ) from None


@takes("resume", but=("run_id", "drift"))
@click.argument("run_id", required=False)
@click.option("--queue", metavar="NAME", help="Resume many runs: only of this queue.")
@click.option("--flow", metavar="NAME", help="Resume many runs: only of this flow.")
@click.option("--failed", is_flag=True, help="Resume all failed runs.")
@click.option("--quarantined", is_flag=True, help="Resume all quarantined runs.")
@click.option(
    "--diverged",
    is_flag=True,
    help="Resume all diverged runs of --flow with the current code. They are replayed; "
    "a run that still diverges is held again.",
)
@click.option("--yes", is_flag=True, help="Resume many runs without asking.")
@click.option("--keep", is_flag=True, help="Held for drift: keep the recorded results.")
@click.option(
    "--redo",
    is_flag=True,
    help="Held for drift: execute the affected steps, and all later steps, again.",
)
@click.option(
    "--dry-run",
    is_flag=True,
    help="Report the changes since the run stopped and the effect of a resume. Resume nothing.",
)
@click.option(
    "--app",
    metavar="MODULE",
    help="With --dry-run: the module or file of the flow, whose code, versions and watched facts "
    "are compared.",
)
def _resume(session: Session, app: str | None, yes: bool, **asked: Any) -> int | None:
    """Without RUN_ID, resume all failed, quarantined or diverged runs.

    When many runs are resumed, a run that needs its own decision (such as an effect in doubt) is
    skipped and reported. After you roll back or repair a deploy, use --diverged --flow NAME. With
    --accept-change, all of them continue with the changed code.

    With --dry-run nothing is resumed. The report shows how long the run has been stopped; which
    code, versions, watched facts and results differ; which steps would be executed again; and which
    effects are in doubt. With --app the flow is replayed on its journal as far as possible; no step
    is executed.
    """
    run_id, queue, flow = asked["run_id"], asked["queue"], asked["flow"]
    if app is not None and not asked["dry_run"]:
        raise UsageError("--app requires --dry-run")
    if asked["dry_run"] and run_id is None:
        raise UsageError("--dry-run reports on one run: give its RUN_ID")
    statuses = [it for it in ("failed", "quarantined", "diverged") if asked[it]]
    if run_id is None or queue is not None or flow is not None or statuses:
        own = any(asked[it] for it in ("confirm", "keep", "redo", "dry_run"))
        own = own or (asked["accept_change"] and statuses != ["diverged"])
        if run_id is not None or len(statuses) != 1 or own:
            raise UsageError(
                "give a RUN_ID; or, for many runs, --failed, --quarantined or --diverged (and --flow "
                "NAME, --queue NAME; --accept-change only with --diverged)"
            )
        if statuses == ["diverged"] and flow is None:
            raise UsageError("--diverged requires --flow NAME: the flow whose code changed")
        many = queue_admin.Many(queue, statuses[0], flow, asked["accept_change"])
        return _resume_many(session, many, asked["actor"], yes=yes)
    if asked["keep"] and asked["redo"]:
        raise UsageError("give --keep or --redo, not both")
    if asked["dry_run"]:
        _preview(session, run_id, app)
        return None
    drift = "keep" if asked["keep"] else "redo" if asked["redo"] else None
    option = {} if drift is None else {"drift": f"--{drift}"}
    tell(
        session,
        session.act("resume", {**asked, "drift": drift}, options=option),
        resumed=[],
        refused=0,
    )
    return None


def _preview(session: Session, run_id: str, app: str | None) -> None:
    if app is None:
        store = session.store()
        row = existing_row(store, run_id)
        past = resume_preview.replayed_history(store, row)
        report = resume_preview.preview_resume(store, row, past, None)
    else:
        report = _with_code(session, run_id, app)
    if session.as_json:
        session.answer(
            preview=msgspec.to_builtins(report), answer=None, next=[], resumed=[], refused=0
        )
        return
    session.say("\n".join([str(report), *(_repeats(it) for it in report.changes if it.effects)]))


def _with_code(session: Session, run_id: str, app: str) -> ResumePreview:
    import holdfast

    module_named(app)
    with holdfast.open(session.url, namespace=session.namespace, default=False) as opened:
        return opened.preview_resume(run_id)


def _repeats(change: Change) -> str:
    return (
        f"Doing it again from {change.steps[0]} on would execute {', '.join(change.effects)} again."
    )


def _resume_many(session: Session, many: queue_admin.Many, actor: str, *, yes: bool) -> int | None:
    store = session.store()
    found = sum(1 for _ in queue_admin.matching_runs(store, many))
    where = "all queues" if many.queue is None else f"queue {many.queue}"
    if many.flow is not None:
        where = f"flow {many.flow}" if many.queue is None else f"flow {many.flow} in {where}"
    if found and not yes:
        asked = f"Resume {count(found, f'{many.status} run')} of {where}"
        if many.accept_change:
            asked += ", with the changed code"
        if not session.confirmed(f"{asked}?", "--yes"):
            return None
    told: list[queue_admin.Resumed] = []
    for resumed in queue_admin.resume_all(store, many, actor):
        told.append(resumed)
        if not session.as_json:
            session.say(f"{resumed.run_id}: {resumed.did}{_because(resumed)}")
    refused = sum(1 for resumed in told if resumed.error is not None)
    if session.as_json:
        session.answer(answer=None, next=[], resumed=told, refused=refused)
    else:
        left = f", {refused} left as they are" if refused else ""
        session.say(f"Resumed: {len(told) - refused} of {where}{left}.")
    return ERROR if refused else None


def _because(resumed: queue_admin.Resumed) -> str:
    return "" if resumed.error is None else f" ({resumed.error})"


def _go_on(session: Session, answer: action_result.Answer) -> list[str]:
    """Return the commands that execute this run, and the runs that the decision freed with it."""
    commands = [
        run_line(session, run_id) for run_id in dict.fromkeys((answer.run_id, *answer.freed))
    ]
    return [line for line in commands if line is not None]


def run_line(session: Session, run_id: str) -> str | None:
    """Return the command that executes a run; None for a block, which needs its script to run
    again."""
    row = existing_row(session.store(), run_id)
    if of_a_block(session, row):
        return None
    return session.pasteable(command_line("run", f"MODULE:{row.flow}", run_id))


def of_a_block(session: Session, row: RunRow) -> bool:
    """Return whether a run is a block of a script, which no worker and no command can execute."""
    return is_block(session.store().entry(row.run_no, 1))


def goes_on_text(what: str, *, or_so: bool) -> str:
    """Return which process performs a decision: for a block of a script, only that script."""
    if not or_so:
        return "It is a block of a script: run that script again."
    return f"A process that has its flow {what} it. If none is running, run your program again, or:"


def tell(session: Session, answer: action_result.Answer, **more: Any) -> None:
    """Print what a decision did and what happens next."""
    go_on = _go_on(session, answer)
    if session.as_json:
        told = msgspec.to_builtins(answer)
        session.answer(answer=told, next=go_on if answer.goes_on else [], **more)
        return
    session.say(f"{answer.did}.")
    if answer.freed:
        session.say(f"Freed with it: {', '.join(answer.freed)}.")
    if answer.effects:
        session.say(
            "Effects that have happened: "
            f"{', '.join(answer.effects)}. If the changed code comes to a new effect before it has "
            "called them, the run is held again."
        )
    if answer.goes_on:
        session.say(goes_on_text("goes on with", or_so=bool(go_on)))
        for line in go_on:
            session.say(f"  {line}")
    elif answer.status == "held":
        session.say("It is still held. To see why:")
        session.say(f"  {session.pasteable(command_line('explain', answer.run_id))}")


# -- set-budget -------------------------------------------------------------------------------


@takes("set_budget")
def _set_budget(session: Session, **asked: Any) -> None:
    """Each limit is a total and includes the amount already spent. Limits that you omit stay
    unchanged. The budget belongs to the run at the top of the family; RUN_ID may be any run of the
    family. A run that is held for its budget continues.
    """
    if all(asked[name] is None for name in ("usd", "tokens", "steps", "wall")):
        raise UsageError("give at least one of --usd, --tokens, --steps and --wall")
    tell(session, session.act("set_budget", asked))


# -- cancel, pause ------------------------------------------------------------------------------


_ENDED = {"completed": OK, "failed": FAILED, "rolled_back": CANCELLED, "cancelled": CANCELLED}


@takes("cancel")
def _cancel(session: Session, **asked: Any) -> int:
    """A step that is executing now finishes and is recorded. The answer reports the outcome: the
    run is cancelled; or it ended before (exit code 0 if it completed, 8 if it was rolled back); or
    the cancel is pending: 5 if a live process still owns the run, 3 if an effect is in doubt and
    has to be settled first.
    """
    return _tell(session, session.act("cancel", asked), f"Run {asked['run_id']} is cancelled")


@takes("pause")
def _pause(session: Session, **asked: Any) -> int:
    """A step that is executing now finishes and is recorded. Children continue. Signals and answers
    that arrive meanwhile are kept. Exit code 5: the pause is pending, and a live process still owns
    the run.
    """
    return _tell(session, session.act("pause", asked), f"Run {asked['run_id']} is paused")


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


# -- rollback -----------------------------------------------------------------------------------


@takes("rollback")
@click.option("--dry-run", is_flag=True, help="Show which effects would be undone; undo nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def _rollback(session: Session, dry_run: bool, yes: bool, **asked: Any) -> int:
    """A process that has the flow calls the undo functions of its effects. With --to, only the
    effects after that step are undone, and the run is held (paused). When it is resumed, it
    executes the steps after that step again.
    """
    run_id, confirm = asked["run_id"], asked["confirm"]
    plan = rollback_views.preview_rollback(session.store(), run_id, asked["to"])
    if dry_run:
        if session.as_json:
            session.answer(preview=plan, answer=None, next=[])
        else:
            session.say(str(plan))
        return OK
    asks = not (confirm if plan.confirm else yes)
    if plan.confirm and asks and (yes or not session.can_ask):
        raise rollback_views.unconfirmed(plan)
    if not session.as_json:
        session.say(str(plan))
    if asks and not session.confirmed(_question(plan), "--yes, or --dry-run to see what it undoes"):
        session.say("Nothing was changed.")
        return OK
    # Confirm only the effects that were shown: the run may have executed more meanwhile.
    answer = session.act("rollback", {**asked, "confirm": confirm or plan.confirm})
    run = run_line(session, run_id)
    go_on = [run] if answer.goes_on and run is not None else []
    if session.as_json:
        session.answer(preview=plan, answer=msgspec.to_builtins(answer), next=go_on)
        return OK
    session.say(f"{answer.did}.")
    if answer.goes_on:
        session.say(goes_on_text("performs", or_so=bool(go_on)))
        for line in go_on:
            session.say(f"  {line}")
    return OK


def _question(plan: rollback_views.RollbackPreview) -> str:
    if plan.confirm:
        return "Some of it cannot be undone. Roll it back anyway?"
    return "Roll it back?"
