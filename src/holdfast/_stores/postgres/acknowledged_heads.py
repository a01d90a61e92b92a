"""The acknowledged heads of this process: the last head of every run that it wrote to.

A server that comes back after a failover, or from an old backup, may have lost the end of what it
acknowledged. The only witnesses are the processes that had the acknowledgement; this is their
memory, and `regressing` is what they do with it.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

from holdfast._engine.journal.rows import RunRow

REMEMBERED_MAX = 20_000
"""How many runs are remembered; the oldest are forgotten."""


class Remembered:
    """The acknowledged heads of one handle, and what is known to be lost."""

    def __init__(self) -> None:
        self.lost: str | None = None
        """Which acknowledged entries are missing, in words; the row of the store says it to all."""
        self._heads: OrderedDict[int, tuple[int, bytes]] = OrderedDict()
        self._said: set[tuple[int, bytes]] = set()
        self._lock = threading.Lock()

    def has_forked(self) -> None:
        """In a forked child: whoever held the lock is not there."""
        self._lock = threading.Lock()

    def acknowledged(self, row: RunRow) -> None:
        """Remember what was just committed."""
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
        """Forget some runs: what they had was lost, and everybody has been told."""
        with self._lock:
            for run_no in numbers:
                _, head = self._heads.pop(run_no, (0, b""))
                self._said.add((run_no, head))

    def was_said(self, run_no: int, head: bytes) -> bool:
        """Tell whether everybody has been told that this end of a run was lost. The write that
        comes upon it afterwards has only lost its run, as to any other owner."""
        with self._lock:
            return (run_no, head) in self._said

    def forget(self) -> None:
        """Forget all runs: the data loss was accepted, whatever they had."""
        with self._lock:
            self._said.update((run_no, head) for run_no, (_, head) in self._heads.items())
            self._heads.clear()
