"""Commands for the store as a whole: verify, backup, restore, adopt."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from holdfast._ops import audit
from holdfast._ops.cli.session import DAMAGED, OK, Session, command
from holdfast._ops.inspect import verified
from holdfast._ops.text import count
from holdfast._store.addresses import shown
from holdfast._store.contract import LOST_END, Damage
from holdfast.errors import UsageError


def add_to(group: click.Group) -> None:
    """Add these commands to the group."""
    command(group, "verify", pages=True)(_verify)
    command(group, "backup")(_backup)
    command(group, "restore")(_restore)
    command(group, "adopt", acts=True)(_adopt)


@click.argument("run_ids", nargs=-1, metavar="[RUN_ID]...")
def _verify(session: Session, run_ids: tuple[str, ...]) -> int:
    """Check everything that is stored, or only these runs."""
    store = session.store()
    with session.progress() as tell:
        findings = verified(store, run_ids or None, tell)
    if session.as_json:
        session.answer(sound=not findings, findings=msgspec.to_builtins(findings))
        return DAMAGED if findings else OK
    if not findings:
        what = (
            "These runs are as they were" if run_ids else "Everything that is stored is as it was"
        )
        session.say(f"{what} written.", "green")
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
            "What is stored of runs that are not named here is as it was written; which of them have "
            "lost their last entries cannot be known."
        )
    return "Runs that are not named here are undamaged."


@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
def _backup(session: Session, path: Path) -> None:
    """Write a consistent copy of the store to a new file, while it is in use."""
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
    """Put a backup where the store is to be (--url says where).

    A store that is there is never overwritten: move it away first, with all files whose names begin
    like its own. What happened after the backup was made is not in it, so in runs that it knows, an
    effect without a record goes through its on_doubt before it is executed.
    """
    from holdfast._store.copies import restore
    from holdfast._store.locate import parse

    if session.url.startswith("memory:"):
        raise UsageError("a store in memory cannot be restored; say where with --url sqlite:///…")
    if session.url.startswith("postgres"):
        raise UsageError(
            f"{shown(session.url)} is a database of a server: restore it with pg_restore, or by the "
            "server's own means, and `holdfast adopt` it; runs of a backup in a file are put there "
            "with `holdfast copy`"
        )
    target = parse(session.url).path
    restore(str(path), target)
    if session.as_json:
        session.answer(restored=target)
    else:
        session.say(f"Restored: {target}, from {path}.")


def _adopt(session: Session, actor: str) -> int:
    """Accept a store that lost acknowledged commits, as it is now.

    Before you do: is this the right file, and not an old copy? Afterwards effects are executed again.
    In runs that existed, an effect without a record goes through its on_doubt first, since it may
    have happened. Runs that were lost whole cannot be known.
    """
    store = session.store()
    lost, session.warning = session.warning, None
    if lost is None:
        if session.as_json:
            session.answer(adopted=None)
        else:
            session.say("Nothing to adopt: no acknowledged commit is missing.")
        return OK
    accepted = store.adopt(actor)
    audit.record(store, actor, "store", "adopted", lost=accepted)
    if session.as_json:
        session.answer(adopted=accepted, actor=actor)
    else:
        session.say(f"Adopted by {actor}: {accepted}.")
    return OK
