"""Which versions of a flow's runs a worker takes, and how an older run goes on under newer code.

A worker takes a run if its version is the flow's own or one that the flow `accepts`. An older run is
replayed exactly, position by position, like any other; what does not fit holds it as diverged, and
nothing is accepted on a guess. With the first entry that the newer code writes, the run becomes one of
the newer version, in the same transaction: from then on a worker with the older code, which could not
replay that entry, no longer takes it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from holdfast._core.entries import Draft, Kind
from holdfast._core.keys import check_label
from holdfast.errors import UsageError

_GIVES_BACK = frozenset({Kind.RUN_HELD, Kind.RUN_RELEASED})
"""Entries that say nothing of what the code does."""


def accepted(flow: str, versions: Iterable[str]) -> tuple[str, ...]:
    """Return the older versions that a flow accepts, or raise a UsageError."""
    if isinstance(versions, str):
        raise UsageError(f"flow {flow}: accepts={versions!r} is a text; write ({versions!r},)")
    return tuple(check_label(f"a version that flow {flow} accepts", text) for text in versions)


class Upgrade:
    """A run of an older version that is executed by newer code."""

    def __init__(self, flow: str, version: str) -> None:
        self.flow = flow
        self.version = version

    def joins(self, drafts: list[Draft], changes: dict[str, Any]) -> bool:
        """Join the first write of what the newer code does; False if this is none of it yet."""
        if all(draft.kind in _GIVES_BACK for draft in drafts):
            return False
        facts = {"actor": f"version {self.version} of {self.flow}", "exact": True}
        body = msgspec.json.encode(facts)
        drafts.insert(0, Draft(Kind.CHANGE_ACCEPTED, drafts[0].at_us, body=body))
        changes["version"] = self.version
        return True
