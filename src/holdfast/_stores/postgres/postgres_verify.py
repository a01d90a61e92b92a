"""Check everything that can be checked without knowing what the values mean."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

from holdfast._stores import measure_rows, row_codec, side_rows
from holdfast._stores.contract import Damage, Progress
from holdfast._stores.postgres.postgres_database import Database, Work
from holdfast._stores.postgres.postgres_queries import fetch_with, packed_row
from holdfast._stores.postgres.server_connection import Link
from holdfast._stores.sqlite import sqlite_verify as checks
from holdfast._stores.sqlite.sqlite_verify import Snapshot


def verify(
    database: Database, namespace: str, run_ids: Iterable[str] | None, progress: Progress
) -> list[Damage]:
    """Return what is wrong; an empty list says that all of it reads as it was written."""
    wanted = None if run_ids is None else list(run_ids)

    def once(work: Work[list[Damage]], tries: int) -> list[Damage]:
        link = database.connect()  # Not of the pool: it may take long, and others read meanwhile.
        try:
            with link.one_state():
                return work(link, tries)
        finally:
            link.close()

    def work(link: Link, _tries: int) -> list[Damage]:
        state = _snapshot(link, progress)
        lost = checks.lost(state.fetch("store_row", ())[0][3])
        if wanted is not None:
            return [*lost, *checks.named_runs(state, namespace, wanted)]
        return [*lost, *_everything(state)]

    return database.again(once, work)


def _snapshot(link: Link, progress: Progress) -> Snapshot:
    numbers = itertools.count()

    def each(name: str) -> Iterator[Any]:
        for row in link.each(name, f"holdfast_{next(numbers)}"):
            yield packed_row(name, row)

    return Snapshot(fetch_with(link), each, progress)


def _everything(state: Snapshot) -> list[Damage]:
    strays = [
        Damage(f"rows of {table}", f"they belong to run number {run_no}, which is not there")
        for table, run_no in state.fetch("rows_without_run", ())
    ]
    late = [
        Damage(f"question {name!r}", "it is open, and the run has ended", run_id)
        for run_id, name in state.fetch("questions_of_nobody", ())
    ]
    return [
        *checks.rows(state, "all_runs", row_codec.run_row),
        *checks.rows(state, "all_keys", row_codec.key_state),
        *checks.rows(state, "all_messages", row_codec.message_row),
        *checks.rows(state, "all_questions", lambda row: side_rows.question_of(row[1:], row[0])),
        *checks.rows(state, "all_pots", side_rows.pot_of),
        *checks.rows(state, "all_memos", side_rows.memo_of),
        *checks.rows(state, "all_measures", measure_rows.measure_of),
        *checks.rows(state, "all_owners", row_codec.owner_row),
        *checks.chunks(state),
        *strays,
        *late,
        *checks.all_runs(state),
    ]
