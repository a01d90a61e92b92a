"""Commands that keep house: gc, export, import."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from holdfast._ops import exporting, housekeeping
from holdfast._ops.cli.acting import duration
from holdfast._ops.cli.session import OK, Session, command
from holdfast._ops.cli.tables import cell, table
from holdfast._ops.housekeeping import Collected
from holdfast._ops.text import count
from holdfast._store.sweeping import Swept

SHOWN = 20
"""How many runs that go, and how many that stay, are listed."""


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    command(group, "gc")(_gc)
    command(group, "export")(_export)
    command(group, "import")(_import)


@click.option(
    "--older-than",
    metavar="TIME",
    help='How long ago they ended, such as "30d", "12h" or a number of seconds. Without it: as long as their flow keeps '
    "them (`@flow(retention=…)`); of flows that say nothing, nothing.",
)
@click.option("--flow", metavar="NAME", help="Only runs of this flow, with their children.")
@click.option(
    "--status",
    multiple=True,
    metavar="STATUS",
    help="completed, cancelled, rolled_back (together the default), or failed; may be repeated.",
)
@click.option(
    "--keep-measures",
    metavar="TIME",
    help="How long what `holdfast trends` shows is kept; 14d if nothing is said.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be removed, and remove nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def _gc(
    session: Session,
    older_than: str | None,
    flow: str | None,
    status: tuple[str, ...],
    keep_measures: str | None,
    dry_run: bool,
    yes: bool,
) -> int:
    """Remove runs that have ended and had their time.

    What goes: journal, values, messages and keys. What stays: the id, so that a run that was removed
    is not begun again by accident. A run is left alone while one of its business keys is younger than
    its key_ttl, while a child of it has not ended, and while a fork stands on it. There is no way
    back: `holdfast export` what you want to keep.
    """
    store = session.store()
    statuses = status or None
    age, kept = duration(older_than), duration(keep_measures)
    if not dry_run and not yes:
        with session.progress() as tell:
            plan = housekeeping.collect(
                store, older_than=age, flow=flow, status=statuses, dry_run=True, progress=tell
            )
        if not session.as_json:
            _list(session, "TO BE REMOVED", plan.removed)
        asked = f"Remove {count(len(plan.removed), 'run')}, for good?"
        if plan.removed and not session.confirmed(asked, "--yes, or --dry-run to see which"):
            session.say("Nothing was removed.")
            return OK
    with session.progress() as tell:
        collected = housekeeping.collect(
            store,
            older_than=age,
            flow=flow,
            status=statuses,
            dry_run=dry_run,
            trends_retention=kept,
            progress=tell,
        )
    return _tell(session, collected)


def _tell(session: Session, collected: Collected) -> int:
    if session.as_json:
        session.answer(collected=msgspec.to_builtins(collected))
        return OK
    removed, left = collected.removed, collected.left
    would = "would be removed" if collected.dry_run else "removed"
    session.say(f"{count(len(removed), 'run')} {would}.")
    if collected.dry_run:
        _list(session, "WOULD BE REMOVED", removed)
    if collected.beside:
        session.say(f"{count(collected.beside, 'old value')} of memories removed.")
    if collected.measures:
        session.say(f"{count(collected.measures, 'old measure')} removed.")
    _list(session, "LEFT", left)
    return OK


def _list(session: Session, title: str, runs: list[Swept]) -> None:
    """Print runs, and how many more there are."""
    if not runs:
        return
    rows = table(title, "FLOW", "STATUS", *(["WHY"] if runs[0].why else []))
    for run in runs[:SHOWN]:
        why = [cell(run.why)] if runs[0].why else []
        rows.add_row(cell(run.run_id), cell(run.flow), cell(run.status), *why)
    session.show(rows)
    if len(runs) > SHOWN:
        session.say(
            f"… and {len(runs) - SHOWN:,} more; all of them: the same with --dry-run --json."
        )


@click.argument("run_id")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
def _export(session: Session, run_id: str, path: Path) -> None:
    """Write a run to a new file, with its chain and everything that it refers to.

    The file is JSON, one entry per line; a name that ends in .gz is compressed. A run's children go
    with it, and so do the runs that it was forked from. What the journal holds, the file holds.
    """
    store = session.store()
    with session.progress() as tell:
        exported = exporting.export(store, run_id, path, tell)
    if session.as_json:
        session.answer(export=str(path), runs=exported.run_ids, bytes=exported.size_bytes)
        return
    more = count(len(exported.run_ids) - 1, "other run")
    what = "" if len(exported.run_ids) == 1 else f", with {more} that belong to it"
    session.say(f"Written: {path} ({exported.size_bytes:,} bytes){what}.")


@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def _import(session: Session, path: Path) -> None:
    """Read runs that were exported into this store.

    Every entry is checked against the chain; a file that was changed is refused. Only runs that have
    ended are read in: one that can still go on lives in one store (`holdfast copy` moves it). A run
    that is here already, the same, is left as it is.
    """
    with session.progress() as tell:
        read = exporting.read_runs(path, tell)  # A file that is refused makes no store.
        imported = exporting.import_runs(session.store(create=True), path, tell, read)
    if session.as_json:
        session.answer(imported=imported.new, there=imported.there)
        return
    session.say(f"Imported: {count(len(imported.new), 'run')} from {path}.")
    for run_id in imported.there:
        session.say(f"Run {run_id} is here already, the same.")
