"""Export a run to one file and import it, with its chain and the runs that it refers to."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from holdfast._engine.decisions.moved_runs import from_file
from holdfast._engine.journal.history import History
from holdfast._engine.journal.lifecycle import ENDED
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.scripts.business_keys import keys_of_done
from holdfast._stores import exports
from holdfast._stores.contract import Progress, Store, WholeRun, no_progress
from holdfast._stores.families import children
from holdfast._stores.lineage import origin_of
from holdfast._stores.lookups import existing_row
from holdfast.errors import Corrupt, RunDeleted, RunError, StoreLostData, UsageError

T = TypeVar("T")


class Written(msgspec.Struct, frozen=True):
    """A file that was written."""

    path: str
    run_ids: list[str]
    """The run, and the runs that belong to it."""
    size_bytes: int


class Imported(msgspec.Struct, frozen=True):
    """The result of an import."""

    run_id: str
    new: list[str]
    there: list[str]
    """Runs that the store had already, unchanged."""


def export(
    store: Store, run_id: str, path: str | Path, progress: Progress = no_progress
) -> Written:
    """Write a run to a new file, with its children and the runs that it was forked from."""
    row = existing_row(store, run_id)
    if row.parent is not None:
        parent = store.get(row.parent)
        if parent is not None and parent.deleted_us is None:
            raise UsageError(
                f"run {run_id!r} is a child of run {row.parent!r}, and means nothing without it; "
                f"export that one: its children go with it"
            )
    rows = _with_all(store, row)
    whole = (store.whole(each) for each in rows)
    told = _with_progress(whole, "runs", len(rows), progress)
    size = exports.write(Path(path), run_id, told, len(rows))
    return Written(str(path), [each.run_id for each in rows], size)


def _with_progress(runs: Iterable[T], what: str, total: int, progress: Progress) -> Iterator[T]:
    for done, run in enumerate(runs, 1):
        progress(what, done, total)
        yield run


def _with_all(store: Store, row: RunRow) -> list[RunRow]:
    """Return a run and all runs that it refers to: the origin of a fork first, children last."""
    wanted: dict[str, RunRow] = {}

    def add(each: RunRow) -> None:
        if each.run_id in wanted:
            return
        origin = origin_of(each)
        if origin is not None:
            add(existing_row(store, origin.run))
        wanted[each.run_id] = each
        for child in children(store, each.run_id):
            add(child)

    add(row)
    return list(wanted.values())


def read_runs(path: str | Path, progress: Progress = no_progress) -> exports.Exported:
    """Read the runs of a file, and refuse it if they must not be imported."""
    read = exports.read(Path(path), progress)
    with exports.damage_in(Path(path)):
        for run in read.runs:
            _check(run)
    return read


def import_runs(
    store: Store,
    path: str | Path,
    progress: Progress = no_progress,
    read: exports.Exported | None = None,
) -> Imported:
    """Read the runs of a file into a store, or those that were `read` before. All are checked before
    the first is written, each is one transaction, and a repeated import continues where it stopped."""
    lost = store.regression()
    if lost is not None:
        raise StoreLostData(
            f"{store.url}: {lost}; look at it, and run `holdfast store accept-data-loss` first"
        )
    read = read_runs(path, progress) if read is None else read
    for run in read.runs:
        here = store.get(run.row.run_id)
        if here is not None and here.deleted_us is not None:
            raise RunDeleted(run.row.run_id)
        run.row = from_file(run.row, Path(path).name)
    new: list[str] = []
    there: list[str] = []
    for run in _with_progress(read.runs, "runs", len(read.runs), progress):
        (new if store.put_whole(run) else there).append(run.row.run_id)
    return Imported(read.run_id, new, there)


def _check(run: WholeRun) -> None:
    row = run.row
    if row.deleted_us is not None:
        raise Corrupt("the row of a deleted run", run_id=row.run_id, why="it has no journal")
    if row.status not in ENDED:
        raise RunError(
            row.run_id,
            f"run {row.run_id!r} was {row.status} when it was exported, and may still go on there: "
            "a run lives in one store. Move it with "
            f"`holdfast store move SOURCE TARGET --run {shlex.quote(row.run_id)}`, or export it when "
            "it has ended",
        )
    _check_keys(run)


def _check_keys(run: WholeRun) -> None:
    """Refuse a run without the key of an effect that happened: the next run with it would repeat it."""
    run_id = run.row.run_id
    past = History.fold(run_id, run.entries)
    missing = keys_of_done([*past.records.values(), *past.superseded]) - {it.key for it in run.keys}
    if missing:
        raise Corrupt(f"key {min(missing)!r}", run_id=run_id, why="the file does not have it")
