"""Commands that only look: runs, show, history, explain."""

from __future__ import annotations

import datetime as dt
import re
from typing import Any

import click
import msgspec
from rich.table import Table
from rich.text import Text

from holdfast._core.commands import command as command_line
from holdfast._core.findings import Found
from holdfast._core.lifecycle import Status
from holdfast._ops import explain as explaining, inspect
from holdfast._ops.budget_view import line
from holdfast._ops.cli import saying
from holdfast._ops.cli.session import Session, command, print_line
from holdfast._ops.entries import EntryView
from holdfast._ops.explanation import Explanation
from holdfast._ops.families import CHILDREN_SHOWN
from holdfast._ops.inspect import RunSummary, RunView, StepView
from holdfast._ops.text import clipped, count, length, shown, visible
from holdfast._store.addresses import NoStore
from holdfast._store.contract import Query, Store
from holdfast.errors import UsageError

STYLES = {
    "completed": "green",
    "running": "cyan",
    "queued": "cyan",
    "waiting": "cyan",
    "held": "yellow",
    "in_doubt": "yellow",
    "retrying": "yellow",
    "failed": "red",
    "cancelled": "dim",
}
STEPS_SHOWN = 40
ENTRIES_SHOWN = 200
_AGE = re.compile(r"(\d+(?:\.\d+)?)([smhd])")
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400}


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    command(group, "runs")(_runs)
    command(group, "show")(_show)
    command(group, "history")(_history)
    command(group, "explain")(_explain)


# -- runs --------------------------------------------------------------------------------------


@click.option("--status", multiple=True, type=click.Choice([str(status) for status in Status]))
@click.option("--flow", help="Only runs of this flow.")
@click.option("--queue", metavar="NAME", help="Only runs of this queue.")
@click.option(
    "--held",
    metavar="REASON",
    help="Only runs held for this reason: in_doubt, budget, diverged, quarantined, corrupt, paused, moved.",
)
@click.option(
    "--finding",
    type=click.Choice([str(kind) for kind in Found]),
    help="Only runs in which the watchdog finds this now.",
)
@click.option("--version", metavar="TEXT", help="Only runs of this version of their flow.")
@click.option("--parent", metavar="RUN_ID", help="Only children of this run.")
@click.option("--tag", metavar="NAME=VALUE", help="Only runs with this tag.")
@click.option("--older-than", metavar="AGE", help="Not changed for so long: 30s, 10m, 2h, 7d.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True)
def _runs(
    session: Session,
    status: tuple[str, ...],
    flow: str | None,
    queue: str | None,
    held: str | None,
    finding: str | None,
    version: str | None,
    parent: str | None,
    tag: str | None,
    older_than: str | None,
    limit: int,
) -> None:
    """List runs, newest first."""
    try:
        store = session.store()
    except NoStore as missing:
        if session.as_json:
            session.answer(runs=[])
        else:
            session.say(f"No runs: {missing}.")
        return
    query = Query(
        status=[Status(name) for name in status] or None,
        flow=flow,
        tag=_tag(tag),
        updated_before_us=_before_us(store.now_us(), older_than),
        queue=queue,
        held_reason=held,
        parent=parent,
        limit=limit,
    )
    found = inspect.summaries(store, query, version, finding)
    if session.as_json:
        session.answer(runs=found)
    elif not found and not any(
        (status, flow, queue, held, finding, version, parent, tag, older_than)
    ):
        session.say(
            "No runs yet. Start one from your program (flow.run('my-run-id', …)), or:\n"
            "  holdfast run MODULE:FLOW RUN_ID --input '{…}'\n"
            "  holdfast demo"
        )
    elif not found:
        session.say("No runs like that.")
    else:
        session.show(_runs_table(found, store.now_us()))
        if len(found) == limit:
            session.say(f"The newest {limit}; more with --limit.", "dim")


def _tag(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--tag is NAME=VALUE, not {text!r}")
    return name, value


def _before_us(now_us: int, age: str | None) -> int | None:
    if age is None:
        return None
    match = _AGE.fullmatch(age)
    if match is None:
        raise UsageError(f"--older-than is a number and a unit (30s, 10m, 2h, 7d), not {age!r}")
    return now_us - int(float(match[1]) * _UNITS_S[match[2]] * 1e6)


def _runs_table(found: list[RunSummary], now_us: int) -> Table:
    rows = table("RUN", "FLOW", "VERSION", "STATUS", "STEPS", "AT", "CHANGED")
    for run in found:
        status = _status(run)
        if run.status == "completed" and run.totals.degraded:
            status += ", degraded"
        changed_s = run.updated_at.timestamp()
        # A row that cannot be read has no time.
        changed = f"{length(max(0.0, now_us / 1e6 - changed_s))} ago" if changed_s else ""
        rows.add_row(
            cell(run.run_id),
            cell(run.flow),
            cell(run.version),
            cell(status, STYLES.get(run.status, "")),
            cell(str(run.totals.steps)),
            cell(run.current_step or ""),
            cell(changed),
        )
    return rows


def _status(run: RunSummary | RunView) -> str:
    if run.status == "held":
        return f"held: {run.held_reason}"
    return (
        f"waiting: {run.waiting_for}" if run.waiting_for and run.status == "waiting" else run.status
    )


# -- show --------------------------------------------------------------------------------------


@click.argument("run_id")
@click.option("--all", "every", is_flag=True, help=f"All steps, not only the last {STEPS_SHOWN}.")
def _show(session: Session, run_id: str, every: bool) -> None:
    """Show one run: its input, its steps, its result."""
    run = inspect.view(session.store(), run_id, plain=True)
    if session.as_json:
        session.answer(run=run)
        return
    _print_head(session, run)
    steps = run.steps if every else run.steps[-STEPS_SHOWN:]
    if steps:
        session.say()
        session.show(_steps_table(steps))
    if len(steps) < len(run.steps):
        session.say(f"The last {len(steps)} of {len(run.steps):,} steps; all with --all.", "dim")
    saying.print_signals(session, run)
    _print_children(session, run)
    if run.status in ("held", "waiting"):
        session.say()
        more = session.pasteable(command_line("explain", run.run_id))
        session.say(f"What can be done: {more}", "yellow")


def _print_head(session: Session, run: RunView) -> None:
    status = _status(run)
    _field(session, "run", run.run_id)
    _field(session, "flow", run.flow)
    _field(session, "version", run.version)
    _field(session, "status", status, STYLES.get(run.status, ""))
    if run.held_detail:
        _field(session, "", run.held_detail)
    if run.owner is not None:
        _field(session, "owner", run.owner)
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
    _field(session, "input", shown(run.input))
    if run.status == "completed":
        _field(session, "result", shown(run.result))
    if run.error is not None:
        _field(session, "error", clipped(str(run.error)), "red")
    _field(session, "started", _at(run.created_at))
    _field(session, "changed", _at(run.updated_at))
    _field(session, "totals", _totals(run))
    if run.budget is not None:
        _field(session, "budget", line(run.budget))


def _print_children(session: Session, run: RunView) -> None:
    if not run.children:
        return
    rows = table("CHILD", "FLOW", "STATUS")
    for child in run.children:
        rows.add_row(
            cell(child.run_id), cell(child.flow), cell(child.told, STYLES.get(child.status, ""))
        )
    session.say()
    session.show(rows)
    if len(run.children) == CHILDREN_SHOWN:
        more = session.pasteable(command_line("runs", "--parent", run.run_id))
        session.say(f"The first {CHILDREN_SHOWN}; more with: {more}", "dim")


def _totals(run: RunView) -> str:
    totals = run.totals
    parts = [count(totals.steps, "step"), count(totals.attempts, "attempt")]
    if totals.degraded:
        parts.append(f"{totals.degraded} degraded")
    if totals.usage:
        parts.append(shown(totals.usage))
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
@click.option("--after", type=int, default=0, help="Only entries with a larger number.")
@click.option(
    "--limit", type=click.IntRange(1), help=f"Default: {ENTRIES_SHOWN}; with --json, all."
)
def _history(
    session: Session, run_id: str, step: str | None, after: int, limit: int | None
) -> int | None:
    """Show the entries of a run's journal, in order."""
    entries = inspect.history(session.store(), run_id, plain=True)
    chosen = [e for e in entries if e.seq > after and step in (None, e.step)]
    if step is not None and not chosen:
        raise UsageError(f"run {run_id!r} has no entries of a step {step!r}")
    if limit is None:
        limit = len(chosen) if session.as_json else ENTRIES_SHOWN
    if session.as_json:
        session.answer(run_id=run_id, entries=[entry_data(entry) for entry in chosen[:limit]])
        return None
    for entry in chosen[:limit]:
        _print_entry(session, entry)
    if len(chosen) > limit:
        last = chosen[limit - 1].seq
        session.say(f"{len(chosen) - limit:,} more: --after {last}", "dim")
    return None


def _print_entry(session: Session, entry: EntryView) -> None:
    line = Text()
    line.append(f"{entry.seq:>4}  {entry.at:%H:%M:%S}.{entry.at.microsecond // 1000:03}  ", "dim")
    line.append(f"{entry.kind:<17} ", STYLES.get(entry.kind.partition("_")[2], ""))
    line.append(f"{visible(entry.step or ''):<20}  ")
    line.append(summary_of(entry), "dim")
    print_line(session.out, line)


def entry_data(entry: EntryView) -> dict[str, Any]:
    """Return an entry as JSON data."""
    return {
        "seq": entry.seq,
        "kind": entry.kind,
        "step": entry.step,
        "attempt": entry.attempt,
        "at": entry.at,
        "body": entry.body,
    }


def summary_of(entry: EntryView) -> str:
    """Return what an entry says, in a few words."""
    body = entry.body
    for field in ("error", "result", "value", "args", "input", "detail", "superseded"):
        if body.get(field) not in (None, [], {}):
            return shown(body[field], 90)
    facts = {
        name: body[name]
        for name in ("from", "before", "why", "as", "actor", "owner", "turn")
        if name in body
    }
    return ", ".join(f"{name}={value}" for name, value in facts.items())


# -- explain -----------------------------------------------------------------------------------


@click.argument("run_id")
def _explain(session: Session, run_id: str) -> None:
    """Say what is the case with a run, and what can safely be done."""
    explanation = explained(session, session.store(), run_id)
    if session.as_json:
        session.answer(explanation=msgspec.to_builtins(explanation))
    else:
        explanation.warning = None  # The banner has said it.
        session.say(str(explanation))


def explained(session: Session, store: Store, run_id: str) -> Explanation:
    """Return an explanation whose commands find this store again."""
    explanation = explaining.explain(store, run_id)
    explanation.actions = [
        msgspec.structs.replace(action, command=session.pasteable(action.command))
        if action.command
        else action
        for action in explanation.actions
    ]
    return explanation


# -- pieces ------------------------------------------------------------------------------------


def table(*titles: str) -> Table:
    """Return a table without lines."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for title in titles:
        made.add_column(title, overflow="fold")
    return made


def cell(text: str, style: str = "") -> Text:
    """Return text of others so that it is inert in a terminal."""
    return Text(visible(text), style=style)


def _field(session: Session, name: str, value: str, style: str = "") -> None:
    line = Text()
    line.append(f"{name:<11}", style="dim")
    line.append(visible(value), style=style)
    session.out.print(line, soft_wrap=True)


def _at(at: dt.datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")
