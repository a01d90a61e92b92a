"""Sequence numbers foreseen, and the ranges of a journal that a resume need not read.

A loop's snapshot replaces the turns before it. Which entries that are is known from the numbers
that the writes of the run will get, in the order in which they are queued.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast._core.entries import Draft
from holdfast._core.history import History
from holdfast._core.rows import RunRow

_encode = msgspec.json.Encoder().encode


class Loop:
    """A loop of turns that is under way: which part of the journal a resume may skip."""

    __slots__ = ("clean", "low", "path")

    def __init__(self, path: str, low: int) -> None:
        self.path = path
        self.low = low
        self.clean = True

    def holds(self, step: str) -> bool:
        """Say whether an entry of this step belongs to the loop."""
        return step == self.path or step.startswith(self.path + "[")


class Skipping:
    """The numbers of one run's writes. Used under the run's lock."""

    def __init__(self, history: History, row: RunRow) -> None:
        self._history = history
        self._loops: list[Loop] = []
        self._loaded_seq = self._next_seq = row.last_seq
        self._skips: list[tuple[int, int]] = [
            (low, high) for low, high in msgspec.json.decode(row.skips)
        ]

    @property
    def has_written(self) -> bool:
        """Whether anything was written since the run was loaded."""
        return self._next_seq != self._loaded_seq

    def count(self, drafts: list[Draft]) -> None:
        """Foresee the numbers of entries that are queued."""
        for draft in drafts:
            self._next_seq += 1 if draft.started_us is None else 2
            for loop in self._loops:
                if draft.step is not None and not loop.holds(draft.step):
                    loop.clean = False

    def take_back(self, drafts: list[Draft]) -> None:
        """Give the numbers of a refused write back."""
        self._next_seq -= sum(draft.span for draft in drafts)

    def enter(self, path: str) -> Loop:
        """Begin (or go on with) a loop; a snapshot that was found keeps its skipped range."""
        loop = Loop(path, self._next_seq + 1)
        low = self._first_seq_of(loop)
        if low > self._history.decided_seq:
            loop.low = low
        self._loops.append(loop)
        return loop

    def _first_seq_of(self, loop: Loop) -> int:
        """Return where the part of the journal begins that the loop's next snapshot replaces:
        what was recorded of the loop before, unless something else stands in between."""
        after = self._next_seq + 1
        records = self._history.records.values()
        saved = self._history.saved.get(loop.path)
        if saved is not None:
            low = next((low for low, high in self._skips if high == saved.seq - 1), saved.seq)
        else:
            inside = loop.path + "["
            firsts = (r.first_seq for r in records if r.key.startswith(inside))
            low = min(firsts, default=after)
        strangers = any(record.last_seq >= low for record in records if not loop.holds(record.key))
        return after if self.has_written or strangers else low

    def leave(self, loop: Loop) -> None:
        """End a loop; what it recorded last stays."""
        if loop in self._loops:
            self._loops.remove(loop)

    def with_snapshot(self, loop: Loop) -> dict[str, Any]:
        """Return the row change that lets a resume skip what the next snapshot replaces."""
        high = self._next_seq
        if not loop.clean:
            loop.low = high + 1
            loop.clean = True
            return {}
        if high < loop.low or is_in_branch(loop.path):
            return {}
        kept = [(low, last) for low, last in self._skips if not loop.low <= low <= high]
        self._skips = sorted([*kept, (loop.low, high)])
        return {"skips": _encode(self._skips).decode()}


def is_in_branch(path: str) -> bool:
    """Say whether a loop stands in a branch of `gather` or `each`."""
    return any(not part.startswith("turns") for part in path.split("/"))
