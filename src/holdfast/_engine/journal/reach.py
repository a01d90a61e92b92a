"""How far a history reaches: whether anything is recorded behind a place of the flow. Pure.

A place is a scope (one branch at one turn) and a position in it. What is recorded in parallel
branches says nothing about it; what is recorded behind the loop or the branches in which it lies
does, because the flow came to that only when it had left this place behind.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from holdfast._engine.journal.step_keys import is_marker, scope_of

if TYPE_CHECKING:
    from holdfast._engine.journal.history import History


class Reach:
    """The last position of each scope, and what is recorded in it without one."""

    def __init__(self, history: History) -> None:
        self._records = history.records
        self._last: dict[str, int] = {}
        for path, position in history.placed:
            self._last[path] = max(position, self._last.get(path, position))
        self._unplaced: defaultdict[str, list[str]] = defaultdict(list)
        for key, record in history.records.items():
            if (record.position is None or key in history.old) and not is_marker(key):
                self._unplaced[scope_of(key)].append(key)

    def beyond(self, path: str, position: int, consumed: set[str]) -> bool:
        """Tell whether something is recorded at this place or behind it."""
        while True:
            if self._last.get(path, -1) >= position:
                return True
            if any(key not in consumed for key in self._unplaced.get(path, ())):
                return True
            if not path:
                return False
            # On to the place of the loop or of the branches that this scope belongs to.
            opener = self._records.get(path.rpartition("[")[0])
            if opener is None or opener.position is None:
                return False
            path, position = scope_of(opener.key), opener.position + 1
