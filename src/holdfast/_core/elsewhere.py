"""A run that has ended and stands in more than one store: what its row says of that. Pure.

A run that has ended waits for nothing, so `waiting_on` of its row is free to say where else it is. It
matters for one thing: rolled back in both stores, its effects would be undone twice.
"""

from __future__ import annotations

from holdfast._core.rows import RunRow

COPIED_TO = "copied_to:"
"""Before the address of the store that a run was copied to."""
FROM_FILE = "from_file:"
"""Before the name of the file that a run was read from."""


def is_copied(row: RunRow) -> bool:
    """Tell whether a run was copied to another store after it had ended."""
    return (row.waiting_on or "").startswith(COPIED_TO)


def where_else(row: RunRow) -> str:
    """Say where else a run is that could be rolled back there as well; empty if nowhere."""
    told = row.waiting_on or ""
    if told.startswith(COPIED_TO):
        return f"it was copied to {told.removeprefix(COPIED_TO)}: roll it back there"
    if told.startswith(FROM_FILE):
        return (
            f"it was read from the file {told.removeprefix(FROM_FILE)}, and may still be in the "
            "store that it was exported from: roll it back there"
        )
    return ""
