"""The mark of a finished run that exists in more than one store. Pure.

A finished run waits for nothing, so its row's `waiting_on` can name the other place. That matters
for one case: undone in both stores, its effects would be undone twice.
"""

from __future__ import annotations

import msgspec

from holdfast._engine.journal.lifecycle import FINAL, Status
from holdfast._engine.journal.rows import RunRow

COPIED_TO = "copied_to:"
"""Prefix of the address of the store that a run was copied to."""
FROM_FILE = "from_file:"
"""Prefix of the name of the file that a run was imported from."""


def before_copy(row: RunRow) -> RunRow:
    """Return the row of a finished run without the mark that it was copied."""
    if not (row.waiting_on or "").startswith(COPIED_TO):
        return row
    return msgspec.structs.replace(row, waiting_on=None).sealed()


def from_file(row: RunRow, name: str) -> RunRow:
    """Return the row of an imported run as it is written to the store."""
    if row.status is Status.ROLLED_BACK:
        return row  # There is nothing left to undo.
    return msgspec.structs.replace(row, waiting_on=FROM_FILE + name).sealed()


def may_be_undone_twice(row: RunRow) -> bool:
    """Return whether a run that is final could still be rolled back."""
    return row.status in FINAL and row.status is not Status.ROLLED_BACK


def where_else(row: RunRow) -> str:
    """Return where else a run could be rolled back as well; empty if nowhere."""
    told = row.waiting_on or ""
    if told.startswith(COPIED_TO):
        return f"it was copied to {told.removeprefix(COPIED_TO)}: roll it back there"
    if told.startswith(FROM_FILE):
        return (
            f"it was read from the file {told.removeprefix(FROM_FILE)}, and may still be in the "
            "store that it was exported from: roll it back there"
        )
    return ""
