"""The command `store move`: move runs from one store to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click

from holdfast._engine.text import count
from holdfast._features.memory.operator import Remembered, copy_memories
from holdfast._features.schedules.operator import copy_schedules
from holdfast._operator.act import store_move
from holdfast._operator.act.store_move import Fate, Moved
from holdfast._operator.cli.exit_codes import BUSY, DAMAGED, ERROR, NOT_FOUND, OK
from holdfast._operator.cli.session import Session, command, open_store
from holdfast._stores import locate
from holdfast._stores.addresses import NoStore
from holdfast._stores.contract import Store
from holdfast.errors import UsageError

_CODES = ((Fate.DAMAGED, DAMAGED), (Fate.CONFLICT, ERROR), (Fate.STAYS, ERROR))
_MORE_CODES = ((Fate.BUSY, BUSY), (Fate.MISSING, NOT_FOUND))
_LEFT = (Fate.BUSY, Fate.CONFLICT, Fate.DAMAGED, Fate.STAYS, Fate.MISSING)


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "move", acts=True)(_move)


@click.argument("source")
@click.argument("target")
@click.option("--to-namespace", metavar="NAME", help="Default: the namespace of the source.")
@click.option("--run", "runs", multiple=True, metavar="RUN_ID", help="Only this run; repeatable.")
@click.option("--dry-run", is_flag=True, help="List the runs that would be moved; change nothing.")
def _move(
    session: Session,
    actor: str,
    source: str,
    target: str,
    to_namespace: str | None,
    runs: tuple[str, ...],
    dry_run: bool,
) -> int:
    """Move runs from one store to another.

    For example: holdfast store move sqlite:///runs.db postgresql://app@db/app

    A run that has not ended is held in the source with its new address, and continues in the
    target. A run that a live process owns is skipped and reported: stop that process and move
    again. Memories, queue limits and schedules are copied too. All written data is read back and
    compared. To finish an interrupted move, run the same command again.
    """
    here = _opened(source, session.namespace)
    try:
        into = session.namespace if to_namespace is None else to_namespace
        there = _target(target, into, dry_run=dry_run)
        try:
            store_move.check(here, there)
            return _report(
                session, here, there, _moving(session, here, there, runs, actor, dry_run)
            )
        finally:
            there.close()
    finally:
        here.close()


def _opened(url: str, namespace: str) -> Store:
    if url.startswith("memory:"):
        raise UsageError("a store in memory belongs to one process, and cannot be moved")
    return open_store(url, namespace, create=False)


def _target(url: str, namespace: str, *, dry_run: bool) -> Store:
    if url.startswith("memory:"):
        raise UsageError("a memory: store ends with this command; give a file or a database")
    try:
        return open_store(url, namespace, create=not dry_run)
    except NoStore:
        locate.check_new(url)
        return open_store("memory:", namespace)  # A dry run does not create the target.


def _moving(
    session: Session, here: Store, there: Store, runs: tuple[str, ...], actor: str, dry_run: bool
) -> _Result:
    wanted = list(runs) or store_move.run_ids(here)
    result = _Result(dry_run=dry_run)
    moved = store_move.move_runs(here, there, wanted, actor=actor, dry_run=dry_run)
    for told in _report_each(session, moved, len(wanted)):
        one = told
        if runs and told.fate is Fate.DELETED:  # The user asked for this run by its id.
            one = Moved(told.run_id, Fate.MISSING, told.why)
        result.fates[one.fate] += 1
        if one.fate in _LEFT:
            result.left.append(one)
    if not runs:
        result.queues = list(store_move.copy_limits(here, there, dry_run=dry_run))
        result.schedules = list(copy_schedules(here, there, dry_run=dry_run))
        result.memories = list(copy_memories(here, there, dry_run=dry_run))
    return result


def _report_each(session: Session, moved: Iterator[Moved], total: int) -> Iterator[Moved]:
    with session.progress() as tell:
        for done, one in enumerate(moved, 1):
            tell("runs", done, total)
            yield one


class _Result:
    """The result of a move."""

    def __init__(self, *, dry_run: bool) -> None:
        self.dry_run = dry_run
        self.fates: Counter[Fate] = Counter()
        self.left: list[Moved] = []
        self.queues: list[str] = []
        self.schedules: list[str] = []
        self.memories: list[Remembered] = []

    def exit_code(self) -> int:
        """Return the exit code: 0 if every run is in the target."""
        codes = (*_CODES, *_MORE_CODES)
        otherwise = ERROR if any(memory.left for memory in self.memories) else OK
        return next((code for fate, code in codes if self.fates[fate]), otherwise)


def _report(session: Session, here: Store, there: Store, result: _Result) -> int:
    code = result.exit_code()
    if session.as_json:
        session.answer(
            source=store_move.display_url(here.url),
            target=store_move.display_url(there.url),
            dry_run=result.dry_run,
            runs={fate.value: result.fates[fate] for fate in Fate},
            left=[{"run_id": one.run_id, "fate": one.fate, "why": one.why} for one in result.left],
            queues=result.queues,
            schedules=result.schedules,
            memories=result.memories,
            exit_code=code,
        )
        return code
    would = "Would be moved" if result.dry_run else "Moved and compared"
    session.say(f"{would}: {count(result.fates[Fate.MOVED], 'run')}.")
    if result.fates[Fate.THERE]:
        session.say(f"Already in the target, unchanged: {count(result.fates[Fate.THERE], 'run')}.")
    if result.fates[Fate.DELETED]:
        session.say(f"Deleted in the source meanwhile: {count(result.fates[Fate.DELETED], 'run')}.")
    if result.queues:
        session.say(f"Queue limits: {', '.join(result.queues)}.")
    if result.schedules:
        session.say(f"Schedules, now paused in the source: {', '.join(result.schedules)}.")
    copied = "Would be copied" if result.dry_run else "Copied and compared"
    _tell_memories(session, copied, result.memories)
    for one in result.left:
        session.say(f"  {one.run_id}: {one.fate}: {one.why}", "bold")
    if result.left:
        session.say(
            f"{count(len(result.left), 'run is', 'runs are')} not moved; moved runs stay moved. "
            "Solve these problems, then run the same command again."
        )
    return code


def _tell_memories(session: Session, would: str, memories: list[Remembered]) -> None:
    for memory in memories:
        if memory.copied:
            there = f"; there already: {memory.there:,}" if memory.there else ""
            copied = count(memory.copied, "value")
            session.say(f"{would}: {copied} of memory {memory.space!r}{there}.")
        elif memory.there:
            there = count(memory.there, "value")
            session.say(f"Already in the target: {there} of memory {memory.space!r}.")
        for key in memory.left:
            session.say(
                f"  memory {memory.space!r}, {key!r}: the target has another value, and this one was "
                "written later, so it is not copied",
                "bold",
            )
