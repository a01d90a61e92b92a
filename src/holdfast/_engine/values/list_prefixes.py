"""Lists that were seen, to find out quickly that a list has only grown.

A *trunk* is the JSON of the longest list of a family, with a *mark* at the end of each list that is
stored and is a beginning of it. Whether a new list goes on from one of them is then a comparison of
bytes, which takes a tenth of a millisecond for megabytes, where a walk takes some.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Any, Final, NamedTuple

TRUNKS_MAX_COUNT: Final = 8
TRUNKS_MAX_BYTES: Final = 16 * 1024 * 1024
STATES_KEPT: Final = 4
"""Digest states are kept for the last marks of a trunk: where lists usually go on from."""


class Mark:
    """The end of a stored list within the JSON of its trunk."""

    __slots__ = ("count", "end", "number", "state")

    def __init__(self, count: int, end: int, number: int, state: Any = None) -> None:
        self.count = count
        self.end = end
        self.number = number
        self.state = state


class Trunk:
    """The JSON of a list (of its elements, or of their nodes), and which beginnings are stored."""

    __slots__ = ("marks", "raw", "typed")

    def __init__(self, raw: bytes, marks: list[Mark], *, typed: bool) -> None:
        self.raw = raw
        self.marks = marks
        self.typed = typed

    def longest_in(self, raw: bytes) -> int:
        """How many of the marks are beginnings of this list too."""
        view = memoryview(self.raw)

        def differs(mark: Mark) -> bool:
            # After the same bytes a number could go on; after a comma or bracket nothing can.
            return not raw.startswith(view[: mark.end]) or raw[mark.end] not in b",]"

        if not differs(self.marks[-1]):
            return len(self.marks)
        return bisect_left(self.marks, True, key=differs)


class Trunks:
    """The trunks of one run, the last used last. Bounded in number and bytes."""

    def __init__(self) -> None:
        self._trunks: list[Trunk] = []

    def __len__(self) -> int:
        return len(self._trunks)

    def grown_from(self, raw: bytes, *, typed: bool) -> Growth:
        """Where a list with this JSON goes on from."""
        best = Growth(None, 0, None)
        for trunk in self._trunks:
            fitting = trunk.longest_in(raw) if trunk.typed is typed else 0
            if fitting and (best.mark is None or trunk.marks[fitting - 1].count > best.mark.count):
                best = Growth(trunk, fitting, trunk.marks[fitting - 1])
        return best

    def put(self, trunk: Trunk, instead_of: Trunk | None = None) -> None:
        """Put a trunk in front, and drop those that have not been used for longest."""
        kept = [t for t in self._trunks if t is not instead_of]
        size = len(trunk.raw)
        first = len(kept)
        while first and len(kept) - first < TRUNKS_MAX_COUNT - 1:
            size += len(kept[first - 1].raw)
            if size > TRUNKS_MAX_BYTES:
                break
            first -= 1
        self._trunks = [*kept[first:], trunk]

    def have(self, number: int) -> bool:
        """Is this list a mark near the end of a trunk, so that growing from it will be seen?"""
        return any(mark.number == number for trunk in self._trunks for mark in trunk.marks[-2:])


class Growth(NamedTuple):
    """A trunk, how many of its marks a list begins with, and the last of those marks."""

    trunk: Trunk | None
    fitting: int
    mark: Mark | None

    def grown(self, raw: bytes, mark: Mark, *, typed: bool) -> tuple[Trunk, Trunk | None]:
        """The trunk of the list that has grown, and the one that it replaces.

        If it grew out of the middle, the other branch may grow again too: then both stay.
        """
        if self.trunk is None:
            return Trunk(raw, [mark], typed=typed), None
        marks = [*self.trunk.marks[: self.fitting], mark]
        if len(marks) > STATES_KEPT:
            marks[-STATES_KEPT - 1].state = None
        at_the_end = self.fitting == len(self.trunk.marks)
        return Trunk(raw, marks, typed=typed), self.trunk if at_the_end else None
