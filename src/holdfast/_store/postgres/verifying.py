"""Check everything that can be checked without knowing what the values mean."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast._store import beside_rows, measure_rows, records, verify as checks
from holdfast._store.contract import Finding
from holdfast._store.lookups import Fetch


def verify(fetch: Fetch, namespace: str, run_ids: Iterable[str] | None) -> list[Finding]:
    """Return what is wrong; an empty list says that all of it reads as it was written."""
    if run_ids is not None:
        return [
            finding for run_id in run_ids for finding in checks.named_run(fetch, namespace, run_id)
        ]
    strays = [
        Finding(f"rows of {table}", f"they belong to run number {run_no}, which is not there")
        for table, run_no in fetch("rows_without_run", ())
    ]
    late = [
        Finding(f"question {name!r}", "it is open, and the run has ended", run_id)
        for run_id, name in fetch("questions_of_nobody", ())
    ]
    return [
        *checks.rows(fetch, "all_runs", records.run_row),
        *checks.rows(fetch, "all_keys", records.key_state),
        *checks.rows(fetch, "all_messages", records.message_row),
        *checks.rows(fetch, "all_questions", lambda row: beside_rows.question_of(row[1:], row[0])),
        *checks.rows(fetch, "all_pots", beside_rows.pot_of),
        *checks.rows(fetch, "all_memos", beside_rows.memo_of),
        *checks.rows(fetch, "all_measures", measure_rows.measure_of),
        *checks.rows(fetch, "all_owners", records.owner_row),
        *checks.rows(fetch, "all_chunks", checks.chunk),
        *strays,
        *late,
        *checks.all_runs(fetch),
    ]
