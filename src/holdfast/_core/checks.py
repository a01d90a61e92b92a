"""All checks of the watchdog. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast._core.again import duplicate_action, looping
from holdfast._core.findings import Finding, Found
from holdfast._core.halves import partial_failure
from holdfast._core.seen import Seen
from holdfast._core.slope import runaway_cost
from holdfast._core.stuck import stuck

CHECKS: dict[Found, Callable[[Seen], Iterator[Finding]]] = {
    Found.STUCK: stuck,
    Found.LOOPING: looping,
    Found.DUPLICATE_ACTION: duplicate_action,
    Found.PARTIAL_FAILURE: partial_failure,
    Found.RUNAWAY_COST: runaway_cost,
}


def check(seen: Seen) -> list[Finding]:
    """Return all that is found in a run, most severe first."""
    order = {"error": 0, "warning": 1, "info": 2}
    found = [finding for make in CHECKS.values() for finding in make(seen)]
    return sorted(found, key=lambda it: (order[it.severity], it.since))
