"""Where a run failed, as its journal says: in a step that gave up, or in the flow's own code."""

from __future__ import annotations

from holdfast._core.entries import Entry, Kind
from holdfast._core.resume import facts_of
from holdfast._core.rows import RunRow
from holdfast._store.contract import Store

FLOW = "the flow"
"""Where a run failed whose steps did not: in the flow's own code."""


def failure(store: Store, row: RunRow) -> Entry | None:
    """Return the entry that says how a run failed: the last, but for what was noted since."""
    seq = row.last_seq
    while seq > 0:
        entry = store.entry(row.run_no, seq)
        if entry is None or entry.kind is not Kind.FINDING_NOTED:
            return entry
        seq -= 1
    return None


def failed_in(failed: Entry | None) -> str | None:
    """Return which step a run failed in, or that its flow's own code raised."""
    if failed is None or failed.kind is not Kind.RUN_FAILED:
        return None
    steps = facts_of(failed).get("steps")
    return str(steps[0]) if steps else FLOW
