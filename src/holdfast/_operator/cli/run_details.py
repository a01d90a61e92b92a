"""Commands that inspect one run: show, history, explain."""

from __future__ import annotations

import datetime as dt

import click
import msgspec
from rich.table import Table
from rich.text import Text

from holdfast._engine.command_lines import command as command_line
from holdfast._engine.telemetry.trace_ids import trace_id_of
from holdfast._engine.text import brief_json, clipped, count, length, visible
from holdfast._features.budgets.operator import line
from holdfast._features.operator_side import Explanation
from holdfast._operator.cli import journal_follower, question_commands
from holdfast._operator.cli.entry_lines import Days, entry_data, print_entry
from holdfast._operator.cli.session import Session, command
from holdfast._operator.cli.tables import STYLES, cell, status_told, table
from holdfast._operator.explain import status_report
from holdfast._operator.read import run_views
from holdfast._operator.read.relatives import children_text
from holdfast._operator.read.run_views import RunView
from holdfast._operator.read.step_views import StepView
from holdfast._stores.contract import Store
from holdfast.errors import UsageError

STEPS_SHOWN = 40
ENTRIES_SHOWN = 200


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    command(group, "show", pages=True)(_show)
    command(group, "history", pages=True)(_history)
    command(group, "explain", pages=True)(_explain)


# -- show --------------------------------------------------------------------------------------


@click.argument("run_id")
@click.option("--all", "every", is_flag=True, help=f"All steps, not only the last {STEPS_SHOWN}.")
def _show(session: Session, run_id: str, every: bool) -> None:
    """Show the input, steps and result of a run."""
    store = session.store()
    run = run_views.view(store, run_id, plain=True)
    trace_id = trace_id_of(store.store_id, store.namespace, run.run_id)
    if session.as_json:
        session.answer(run=run, trace_id=trace_id)
        return
    _print_head(session, run)
    _field(session, "trace", trace_id)
    steps = run.steps if every else run.steps[-STEPS_SHOWN:]
    if steps:
        session.say()
        session.show(_steps_table(steps))
    if len(steps) < len(run.steps):
        session.say(f"The last {len(steps)} of {len(run.steps):,} steps; all with --all.", "dim")
    question_commands.print_signals(session, run)
    _print_children(session, run)
    if run.status in ("held", "waiting") or run.owner_died:
        session.say()
        more = session.pasteable(command_line("explain", run.run_id))
        session.say(f"What can be done: {more}", "yellow")


def _print_head(session: Session, run: RunView) -> None:
    status = status_told(run)
    _field(session, "run", run.run_id)
    _field(session, "flow", run.flow)
    _field(session, "version", run.version)
    _field(session, "status", status, STYLES.get(run.status, ""))
    if run.held_detail:
        session.say(f"{' ' * 11}{run.held_detail}")
    if run.stopping is not None:
        asked = run.stopping
        told = f"to be {asked.what}, as {asked.actor} asked {_at(asked.at)}"
        _field(session, "asked", f"{told}{asked.reason and ': ' + asked.reason}", "yellow")
    if run.owner is not None:
        _field(session, "owner", run.owner + (", which is dead" if run.owner_died else ""))
    for step in run.running:
        tries = f", attempt {step.attempt}" if step.attempt > 1 else ""
        _field(session, "running", f"{step.key}{tries}, since {_at(step.since)}")
    if run.status == "running" and not run.running and not run.abandoned:
        soon = "a step appears here if it still executes at the next heartbeat of its process"
        _field(session, "running", f"not known yet: {soon}", "dim")
    if run.generation > 1:
        _field(session, "generation", str(run.generation))
    if run.origin is not None:
        _field(session, "fork of", run.origin)
    if run.parent is not None:
        _field(session, "child of", run.parent)
    if run.deadline is not None:
        _field(session, "deadline", _at(run.deadline))
    if run.tags:
        _field(session, "tags", ", ".join(f"{name}={value}" for name, value in run.tags.items()))
    _field(session, "input", brief_json(run.input))
    if run.status == "completed":
        _field(session, "result", brief_json(run.result))
    if run.error is not None:
        where = f" (in {run.failed_in})" if run.failed_in is not None else ""
        _field(session, "error", clipped(str(run.error)) + where, "red")
    _field(session, "started", _at(run.created_at))
    _field(session, "changed", _at(run.updated_at))
    _field(session, "totals", _totals(run))
    if run.budget is not None:
        _field(session, "budget", line(run.budget))
    if run.children_by_status:
        _field(session, "children", children_text(run.children_by_status))


def _print_children(session: Session, run: RunView) -> None:
    if not run.children:
        return
    rows = table("CHILD", "FLOW", "STATUS")
    for child in run.children:
        rows.add_row(
            cell(child.run_id),
            cell(child.flow),
            cell(child.status_text, STYLES.get(child.status, "")),
        )
    session.say()
    session.show(rows)
    if sum(run.children_by_status.values()) > len(run.children):
        more = session.pasteable(command_line("runs", "--parent", run.run_id))
        session.say(f"The newest {len(run.children)}; more with: {more}", "dim")


def _totals(run: RunView) -> str:
    totals = run.totals
    counts = run.step_counts
    called = f" of {counts.called:,} called" if counts.called > totals.steps else ""
    parts = [f"{count(totals.steps, 'step')} done{called}", count(totals.attempts, "attempt")]
    if counts.others:
        parts.append(count(counts.others, "other call"))
    if totals.degraded:
        parts.append(f"{totals.degraded} degraded")
    if totals.usage:
        parts.append(brief_json(totals.usage))
    return ", ".join(parts)


def _steps_table(steps: list[StepView]) -> Table:
    rows = table("STEP", "STATUS", "TRIES", "TOOK", "")
    for step in steps:
        status = step.status.replace("_", " ")
        notes = ["transaction" if step.transaction else "effect"] if step.effect else []
        if step.superseded:
            notes.append("superseded")
        if step.borrowed:
            notes.append("borrowed")
        if step.degraded is not None:
            notes.append(f"degraded: {step.degraded}")
        if step.settled is not None:
            after = step.settled.after_s
            later = "" if after is None or after < 1 else f" ({length(after)} later)"
            notes.append(f"{step.settled}{later}")
        if step.error is not None:
            notes.append(clipped(str(step.error), 120))
        rows.add_row(
            cell(step.key),
            cell(status, STYLES.get(step.status, "")),
            cell(str(step.attempts or "")),
            cell("" if step.duration_s is None else length(step.duration_s)),
            cell(", ".join(notes), "dim"),
        )
    return rows


# -- history -----------------------------------------------------------------------------------


@click.argument("run_id")
@click.option("--step", help="Only entries of this step key.")
@click.option(
    "--after",
    type=click.IntRange(0),
    metavar="SEQ",
    help="Only entries with a larger number. With --follow, the default is the last "
    f"{journal_follower.FIRST} entries.",
)
@click.option(
    "--limit", type=click.IntRange(1), help=f"Default: {ENTRIES_SHOWN}; with --json, all."
)
@click.option("--follow", is_flag=True, help="Print new entries as they become durable.")
@click.option(
    "--until-held", is_flag=True, help="With --follow: also end, with 3, when it is held."
)
def _history(
    session: Session,
    run_id: str,
    step: str | None,
    after: int | None,
    limit: int | None,
    follow: bool,
    until_held: bool,
) -> int | None:
    """Show the entries of a run's journal, in order.

    --follow ends when the run ends: 0 completed, 4 failed, 8 cancelled or rolled back; Ctrl-C ends
    it with 130. It does not end while a run is held, because somebody may free the run. With --json
    each line is one object with "version" and "event": entry, run, away, back, end.
    """
    if follow:
        if limit is not None:
            raise UsageError("--follow does not take --limit; give --after to set where to begin")
        return journal_follower.follow_run(session, run_id, after, step, until_held=until_held)
    if until_held:
        raise UsageError("--until-held requires --follow")
    after = after or 0
    entries = run_views.history(session.store(), run_id, plain=True)
    chosen = [e for e in entries if e.seq > after and step in (None, e.step)]
    if step is not None and not chosen:
        raise UsageError(f"run {run_id!r} has no entries of a step {step!r}")
    if limit is None:
        limit = len(chosen) if session.as_json else ENTRIES_SHOWN
    if session.as_json:
        session.answer(run_id=run_id, entries=[entry_data(entry) for entry in chosen[:limit]])
        return None
    days = Days(session.out)
    for entry in chosen[:limit]:
        days.at(entry.at)
        print_entry(session.out, entry)
    if len(chosen) > limit:
        last = chosen[limit - 1].seq
        session.say(f"{len(chosen) - limit:,} more: --after {last}", "dim")
    return None


# -- explain -----------------------------------------------------------------------------------


@click.argument("run_id")
def _explain(session: Session, run_id: str) -> None:
    """Explain a run's status and the safe next actions."""
    explanation = explained(session, session.store(), run_id)
    if session.as_json:
        session.answer(explanation=msgspec.to_builtins(explanation))
    else:
        explanation.warning = None  # The banner has shown it.
        session.say(str(explanation))


def explained(session: Session, store: Store, run_id: str) -> Explanation:
    """Return an explanation whose commands name this store."""
    explanation = status_report.explain(store, run_id)
    explanation.actions = [
        msgspec.structs.replace(action, command=session.pasteable(action.command))
        if action.command
        else action
        for action in explanation.actions
    ]
    return explanation


# -- pieces ------------------------------------------------------------------------------------


def _field(session: Session, name: str, value: str, style: str = "") -> None:
    line = Text()
    line.append(f"{name:<11}", style="dim")
    line.append(visible(value), style=style)
    session.out.print(line, soft_wrap=True)


def _at(at: dt.datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")
