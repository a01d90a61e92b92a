"""The turns of a conversation: which result belongs to which call, and whether it stands where it must.

A result belongs to the last turn before it that has a call of its id. Of several calls of one id in that
turn the first that has none yet gets it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class Called:
    """One call: its id, the how manieth of that id it is, the line it stands in, and its result."""

    def __init__(self, call_id: str, number: int, asked: dict[str, Any]) -> None:
        self.id, self.number, self.asked = call_id, number, asked
        self.result: dict[str, Any] | None = None
        self.in_place = False


class Turn:
    """The calls that a model made at once."""

    def __init__(self) -> None:
        self.calls: list[Called] = []

    def misplaced(self) -> list[Called]:
        """Return the calls without a result where it belongs. They are returned once."""
        found = [call for call in self.calls if not call.in_place]
        for call in found:
            call.in_place = True
        return found


class Turns:
    """All turns of a conversation, as it is read."""

    def __init__(self) -> None:
        self.last = Turn()
        self._calling: dict[str, Turn] = {}
        self._seen: dict[str, int] = {}

    def begin(self) -> None:
        """Results that come from now on do not stand where those of the turn before belong."""
        self.last = Turn()

    def add(self, call_ids: Iterable[str], asked: dict[str, Any]) -> None:
        """Add the calls of a line to the last turn."""
        for call_id in call_ids:
            self._seen[call_id] = self._seen.get(call_id, 0) + 1
            self._calling[call_id] = self.last
            self.last.calls.append(Called(call_id, self._seen[call_id], asked))

    def take(self, call_id: str, result: dict[str, Any]) -> bool:
        """Give a result to its call, if one waits for it; says whether it can stay where it stands."""
        turn = self._calling.get(call_id)
        for call in turn.calls if turn else ():
            if call.id == call_id and call.result is None:
                call.result, call.in_place = result, turn is self.last
                return call.in_place
        return False


def named(call_id: str, number: int) -> str:
    """Return what a call is known by: `id`, `id#2` …"""
    return call_id if number == 1 else f"{call_id}#{number}"
