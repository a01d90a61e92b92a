"""The group `store`: commands for the store as a whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from holdfast._api.actions import declared
from holdfast._engine.text import count
from holdfast._features.retention.store import Swept
from holdfast._operator.act import garbage_collection, run_files
from holdfast._operator.act.garbage_collection import Collected
from holdfast._operator.cli import move_command
from holdfast._operator.cli.exit_codes import DAMAGED, OK
from holdfast._operator.cli.session import (
    Session,
    command,
    spelled_as_options,
    subgroup,
    takes,
)
from holdfast._operator.cli.tables import cell, table
from holdfast._operator.read.run_views import verified
from holdfast._stores import audit_log
from holdfast._stores.addresses import NoStore, without_password
from holdfast._stores.contract import LOST_END, Damage
from holdfast.errors import UsageError


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    store = subgroup("store", "Check, back up, restore, prune and move a store.")
    command(store, "verify", pages=True)(_verify)
    command(store, "backup")(_backup)
    command(store, "restore")(_restore)
    command(store, "prune")(_prune)
    move_command.add_to(store)
    command(store, "export")(_export)
    command(store, "import")(_import)
    command(store, "audit", pages=True)(_audit)
    command(store, "accept-data-loss", acts=True)(_accept_data_loss)
    group.add_command(store)


@click.argument("run_ids", nargs=-1, metavar="[RUN_ID]...")
def _verify(session: Session, run_ids: tuple[str, ...]) -> int:
    """Check all stored data, or only these runs."""
    store = session.store()
    with session.progress() as tell:
        findings = verified(store, run_ids or None, tell)
    if session.as_json:
        session.answer(sound=not findings, findings=msgspec.to_builtins(findings))
        return DAMAGED if findings else OK
    if not findings:
        what = "These runs are undamaged" if run_ids else "All stored data is undamaged"
        session.say(f"{what}.", "green")
        return OK
    session.banner(f"{count(len(findings), 'damage', 'damages')} found:")
    for finding in findings:
        where = "" if finding.run_id is None else f"run {finding.run_id}: "
        session.say(f"  {where}{finding.what}: {finding.why}")
    session.say(f"Nothing is repaired silently. {_of_the_rest(findings)}")
    return DAMAGED


def _of_the_rest(findings: list[Damage]) -> str:
    if any(finding.what == LOST_END for finding in findings):
        return (
            "The stored data of all other runs is undamaged, but it cannot be known which of them "
            "lost their last entries."
        )
    return "All other runs are undamaged."


@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
def _backup(session: Session, path: Path) -> None:
    """Write a consistent copy to a new file.

    The store may be in use meanwhile.
    """
    if path.exists():
        raise UsageError(f"{path} exists already; a backup is written to a new file")
    store = session.store()
    with session.progress() as tell:
        store.backup(str(path), tell)
    if session.as_json:
        session.answer(backup=str(path), bytes=path.stat().st_size)
    else:
        session.say(f"Written: {path} ({path.stat().st_size:,} bytes).")


@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def _restore(session: Session, path: Path) -> None:
    """Restore a backup to the address of --url.

    An existing store is never overwritten: first move it away, with all files whose names begin
    like its own. The backup has no records of later effects. So in the runs of the backup, an
    effect without a record goes through its on_doubt before it is executed.
    """
    from holdfast._stores.locate import parse
    from holdfast._stores.sqlite.backups import restore

    if session.url.startswith("memory:"):
        raise UsageError(
            "a memory: store ends with this command; give a target with --url sqlite:///…"
        )
    if session.url.startswith("postgres"):
        raise UsageError(
            f"{without_password(session.url)} is a database of a server: restore it with pg_restore, or by the "
            "server's own means, and then run `holdfast store accept-data-loss`; "
            "`holdfast store move SOURCE TARGET` moves the runs of a backup in a file there"
        )
    target = parse(session.url).path
    restore(str(path), target)
    if session.as_json:
        session.answer(restored=target)
    else:
        session.say(f"Restored: {target}, from {path}.")


@takes("accept_data_loss")
def _accept_data_loss(session: Session, actor: str) -> int:
    """First make sure that this is the right file, not an old copy. Afterwards effects are executed
    again. In existing runs, an effect without a record goes through its on_doubt first, since it
    may have happened. Runs that were lost completely cannot be detected.
    """
    session.store()
    lost, session.warning = session.warning, None
    if lost is None:
        if session.as_json:
            session.answer(accepted=None)
        else:
            session.say("Nothing to accept: no acknowledged commit is missing.")
        return OK
    accepted = session.act("accept_data_loss", {"actor": actor})
    if session.as_json:
        session.answer(accepted=accepted, actor=actor)
    else:
        session.say(f"Accepted by {actor}: {accepted}.")
    return OK


# -- prune, export, import -------------------------------------------------------------------------


SHOWN = 20
"""How many removed runs, and how many kept ones, are listed."""


@takes("prune", but=("status",))
@click.option(
    "--status",
    multiple=True,
    metavar="STATUS",
    help="completed, cancelled, rolled_back (the default: these three), or failed; repeatable.",
)
@click.option("--yes", is_flag=True, help="Do not ask.")
def _prune(session: Session, status: tuple[str, ...], yes: bool, **asked: Any) -> int:
    """This removes the journal, values, messages and keys of a run. The id stays, so that a removed
    run is not started again by accident. A run is kept while one of its business keys is younger
    than its key_ttl, while one of its children has not ended, and while a fork depends on it.
    Removal cannot be undone: first `holdfast store export` the runs that you want to keep.
    """
    asked["status"] = status or None
    if not asked["dry_run"] and not yes:
        plan = _collect(session, {**asked, "dry_run": True})
        if not session.as_json:
            _list(session, "TO BE REMOVED", plan.removed)
        prompt = f"Remove {count(len(plan.removed), 'run')} permanently?"
        if plan.removed and not session.confirmed(prompt, "--yes, or --dry-run to see which"):
            session.say("Nothing was removed.")
            return OK
    return _tell(session, _collect(session, asked))


def _collect(session: Session, asked: dict[str, Any]) -> Collected:
    """Do what the action does, and show how far it is."""
    action = declared("prune")
    with session.progress() as tell, spelled_as_options(action) as words:
        action.check(asked, words.__getitem__)
        return garbage_collection.collect(session.store(), **asked, progress=tell)


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
        session.say(f"… and {len(runs) - SHOWN:,} more; to list all: add --dry-run --json.")


@click.argument("run_id")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
def _export(session: Session, run_id: str, path: Path) -> None:
    """Write a run to a new file.

    The file is JSON, one entry per line; a name that ends in .gz is compressed. The file includes
    the run's children and the runs that it was forked from. It contains all values of the journal.
    """
    store = session.store()
    with session.progress() as tell:
        exported = run_files.export(store, run_id, path, tell)
    if session.as_json:
        session.answer(export=str(path), runs=exported.run_ids, bytes=exported.size_bytes)
        return
    more = count(len(exported.run_ids) - 1, "other run")
    what = "" if len(exported.run_ids) == 1 else f", with {more} related to it"
    session.say(f"Written: {path} ({exported.size_bytes:,} bytes){what}.")


@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def _import(session: Session, path: Path) -> None:
    """Read exported runs into this store.

    Every entry is checked against the digest chain; a changed file is refused. Only ended runs are
    imported, because a run that can continue must exist in one store only (`holdfast store move`
    moves it). A run that the store already has unchanged is skipped.
    """
    with session.progress() as tell:
        read = run_files.read_runs(path, tell)  # A refused file creates no store.
        imported = run_files.import_runs(session.store(create=True), path, tell, read)
    if session.as_json:
        session.answer(imported=imported.new, there=imported.there)
        return
    session.say(f"Imported: {count(len(imported.new), 'run')} from {path}.")
    for run_id in imported.there:
        session.say(f"Run {run_id} already exists, unchanged.")


# -- audit --------------------------------------------------------------------------------------


@click.option(
    "--limit",
    type=click.IntRange(1, audit_log.LISTED_MAX),
    default=50,
    show_default=True,
    help="Maximum number of entries, newest first.",
)
def _audit(session: Session, limit: int) -> None:
    """Show who changed queues, schedules and tokens.

    It also shows who accepted a data loss. The log is kept for ninety days. Decisions about a run
    are in the run's history.
    """
    try:
        found = audit_log.recorded_changes(session.store(), limit)
    except NoStore as missing:
        if session.as_json:
            session.answer(audit=[])
        else:
            session.say(f"Nothing was changed: {missing}.")
        return
    if session.as_json:
        session.answer(audit=found)
        return
    if not found:
        session.say("Nothing was changed in the last ninety days.")
        return
    rows = table("WHEN", "WHO", "WHAT", "DID")
    for it in found:
        detail = msgspec.json.encode(it.detail).decode() if it.detail else ""
        did = f"{it.did} {detail}".strip()
        rows.add_row(cell(f"{it.at:%Y-%m-%d %H:%M:%S}"), cell(it.actor), cell(it.what), cell(did))
    session.show(rows)
