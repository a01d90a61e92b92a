"""What the row of a run says beside its entries: what it used, what degraded, what it waits for.

Totals go with the next write of the run. A write that is refused gives back what it carried.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast._core.changes import SPENT_MAX
from holdfast._core.requests import Append
from holdfast._core.rows import RunRow, Write

_encode = msgspec.json.Encoder().encode


class Totals:
    """The totals of a run at work; used under the run's lock."""

    def __init__(self, row: RunRow) -> None:
        self.waits = False
        """Whether the row says that the run waits; the next entry of a step ends that."""
        self._usage: dict[str, Any] = msgspec.json.decode(row.usage)
        self._owes_usage = False
        self._degraded = row.degraded

    def changes(self, request: Append) -> dict[str, Any]:
        """Count what a request brings, and return what its write changes in the row."""
        changes: dict[str, Any] = {}
        if self.waits:
            self.waits = False
            changes["waiting_on"] = None
        call = request.call
        if call.usage and request.notes and request.notes[-1].ends_attempt:
            for name, amount in call.usage.items():
                if isinstance(amount, int | float):
                    self._usage[name] = min(SPENT_MAX, self._usage.get(name, 0) + amount)
            call.usage = None
            self._owes_usage = True
        if self._owes_usage:
            self._owes_usage = False
            changes["usage"] = self._used()
        if request.degraded:
            self._degraded += request.degraded
            changes["degraded"] = self._degraded
        return changes

    def refused(self, write: Write) -> None:
        """A write was refused: what it carried goes with the next one."""
        self.waits = self.waits or "waiting_on" in write.row
        self._owes_usage = self._owes_usage or "usage" in write.row

    def renew(self, write: Write) -> None:
        """A write was kept back: the totals that it carries are told as they are now."""
        if "usage" in write.row:
            write.row["usage"] = self._used()
        if "degraded" in write.row:
            write.row["degraded"] = self._degraded

    def _used(self) -> str:
        return _encode(self._usage).decode()
