"""The acknowledged heads of this process: the last head of every run that it wrote to.

After a failover, or from an old backup, a server may have lost the last acknowledged commits. Only
the processes that received the acknowledgements can detect that. This is their memory, which
`regression` uses.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

from holdfast._engine.journal.rows import RunRow

REMEMBERED_MAX = 20_000
"""How many runs are remembered; the oldest are dropped."""


class Remembered:
    """The acknowledged heads of one handle, and the known loss."""

    def __init__(self) -> None:
        self.lost: str | None = None
        """A text about the missing acknowledged entries; the row of the store has it for all
        processes."""
        self._heads: OrderedDict[int, tuple[int, bytes]] = OrderedDict()
        self._said: set[tuple[int, bytes]] = set()
        self._lock = threading.Lock()

    def has_forked(self) -> None:
        """Reset the lock in a forked child: the thread that held it does not exist there."""
        self._lock = threading.Lock()

    def acknowledged(self, row: RunRow) -> None:
        """Remember the head of a committed row."""
        with self._lock:
            self._heads[row.run_no] = (row.last_seq, row.head)
            self._heads.move_to_end(row.run_no)
            if len(self._heads) > REMEMBERED_MAX:
                self._heads.popitem(last=False)

    def heads(self) -> dict[int, tuple[int, bytes]]:
        """Return the heads, by run number."""
        with self._lock:
            return dict(self._heads)

    def said(self, numbers: Iterable[int]) -> None:
        """Forget runs whose loss is recorded in the store."""
        with self._lock:
            for run_no in numbers:
                _, head = self._heads.pop(run_no, (0, b""))
                self._said.add((run_no, head))

    def was_said(self, run_no: int, head: bytes) -> bool:
        """Return whether the loss of this end of a run is recorded. A later write that meets it has
        only lost its run, as to any other owner."""
        with self._lock:
            return (run_no, head) in self._said

    def forget(self) -> None:
        """Forget all runs, because the data loss was accepted."""
        with self._lock:
            self._said.update((run_no, head) for run_no, (_, head) in self._heads.items())
            self._heads.clear()
