"""The command `runs`: list runs by status, flow, queue, tag and other filters."""

from __future__ import annotations

import click
from rich.text import Text

from holdfast._engine.journal.lifecycle import HeldReason, Status
from holdfast._engine.text import length
from holdfast._features.watchdog.model import Found
from holdfast._operator.cli import journal_follower
from holdfast._operator.cli.session import DurationType, Session, command
from holdfast._operator.cli.tables import STYLES, cell, status_told
from holdfast._operator.read import run_views
from holdfast._operator.read.run_views import RunSummary
from holdfast._stores.addresses import NoStore, place, without_password
from holdfast._stores.contract import Query
from holdfast.errors import RunNotFound, UsageError

_REASONS = tuple(str(reason) for reason in HeldReason)
LISTED = 50
_LEAST = ("VERSION", "STEPS", "AT", "FLOW")
"""The columns that a narrow table omits, in this order."""


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "runs", pages=True)(_runs)


@click.option(
    "--status",
    multiple=True,
    type=click.Choice([str(status) for status in Status]),
    help="Only runs with this status; may be given several times.",
)
@click.option("--search", metavar="TEXT", help="Only runs with this text in their run id.")
@click.option("--flow", metavar="NAME", help="Only runs of this flow.")
@click.option("--tag", metavar="NAME=VALUE", help="Only runs with this tag.")
@click.option("--queue", metavar="NAME", help="Only runs of this queue.")
@click.option(
    "--held-reason",
    metavar="REASON",
    help=f"Only runs held for this reason: {', '.join(_REASONS)}.",
)
@click.option(
    "--finding",
    type=click.Choice([str(kind) for kind in Found]),
    help="Only runs with this open finding of the watchdog.",
)
@click.option("--version", metavar="TEXT", help="Only runs of this version of their flow.")
@click.option("--parent", metavar="RUN_ID", help="Only children of this run.")
@click.option(
    "--older-than", type=DurationType(), help="Not changed for this long: 30s, 10m, 2h, 7d."
)
@click.option("--newer-than", type=DurationType(), help="Changed within this time.")
@click.option("--limit", type=click.IntRange(1, 10_000), help=f"Default: {LISTED}.")
@click.option("--after", metavar="CURSOR", help="The page that follows; --json has it as `next`.")
@click.option("--follow", is_flag=True, help="Print each change of these runs from now on.")
def _runs(
    session: Session,
    status: tuple[str, ...],
    search: str | None,
    flow: str | None,
    tag: str | None,
    queue: str | None,
    held_reason: str | None,
    finding: str | None,
    version: str | None,
    parent: str | None,
    older_than: float | None,
    newer_than: float | None,
    limit: int | None,
    after: str | None,
    follow: bool,
) -> int | None:
    """List runs, newest first; several options must all match.

    With --follow, Ctrl-C ends it with 130. With --json each line is then one object with "version"
    and "event": run, away, back.
    """
    try:
        store = session.store()
    except NoStore as missing:
        if session.as_json:
            session.answer(runs=[], next=None)
        else:
            session.say(f"No runs: {missing}.")
        return None
    if held_reason is not None and held_reason not in _REASONS:
        raise UsageError(f"--held-reason must be one of {', '.join(_REASONS)}; not {held_reason!r}")
    query = Query(
        status=[Status(name) for name in status] or None,
        run_id_part=search,
        flow=flow,
        tag=_tag(tag),
        updated_before_us=_before_us(store.now_us(), older_than),
        updated_after_us=_before_us(store.now_us(), newer_than),
        queue=queue,
        held_reason=held_reason,
        parent=parent,
        limit=LISTED if limit is None else limit,
        before_run_no=run_views.run_cursor(after),
    )
    if parent is not None and store.get(parent) is None:
        raise RunNotFound(parent, place(store.url, store.namespace))
    if follow:
        if (finding, version, older_than, newer_than, limit, after) != (None,) * 6:
            refused = "--finding, --version, --older-than, --newer-than, --limit or --after"
            raise UsageError(f"--follow does not take {refused}")
        return journal_follower.follow_runs(session, query)
    found = run_views.summaries(store, query, version, finding)
    filters = (search, flow, tag, queue, held_reason, finding, version, parent)
    ages = (older_than, newer_than)
    is_filtered = bool(status) or any(it is not None for it in (*filters, *ages))
    if session.as_json:
        session.answer(runs=found, next=found.next)
    elif not found and not is_filtered:
        session.say(
            f"No runs yet in {place(without_password(session.url), session.namespace)}.\n"
            "Start one from your program (flow.run('my-run-id', …)), or:\n"
            f"  {session.pasteable('run MODULE:FLOW RUN_ID')} --input '{{…}}'\n"
            "  holdfast demo"
        )
    elif not found:
        session.say("No matching runs.")
    else:
        _show(session, found, store.now_us())
    return None


def _show(session: Session, found: run_views.Page[RunSummary], now_us: int) -> None:
    titles = ("RUN", "FLOW", "VERSION", "STATUS", "STEPS", "AT", "CHANGED")
    session.show_rows(titles, [_row(run, now_us) for run in found], _LEAST)
    if found.next is not None:
        session.say(f"More follow: --after {found.next}, or a larger --limit.", "dim")


def _tag(text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise UsageError(f"--tag must be NAME=VALUE, not {text!r}")
    return name, value


def _before_us(now_us: int, age_s: float | None) -> int | None:
    return None if age_s is None else now_us - int(age_s * 1e6)


def _where(run: RunSummary, now_us: int) -> str:
    """Return the step at work and how long it has been executing; otherwise the last recorded
    step."""
    step = run.running
    if step is None:
        return run.current_step or ""
    tries = f", attempt {step.attempt}" if step.attempt > 1 else ""
    return f"{step.key}{tries} ({length(max(0.0, now_us / 1e6 - step.since.timestamp()))})"


def _row(run: RunSummary, now_us: int) -> list[Text]:
    status = status_told(run)
    if run.status == "completed" and run.totals.degraded:
        status += ", degraded"
    changed_s = run.updated_at.timestamp()
    # An unreadable row has no time.
    changed = f"{length(max(0.0, now_us / 1e6 - changed_s))} ago" if changed_s else ""
    return [
        cell(run.run_id),
        cell(run.flow),
        cell(run.version),
        cell(status, STYLES.get(run.status, "")),
        cell(str(run.totals.steps)),
        cell(_where(run, now_us)),
        cell(changed),
    ]
