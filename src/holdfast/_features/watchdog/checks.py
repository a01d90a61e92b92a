"""All checks of the watchdog. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from holdfast._features.watchdog.model import Finding, Found
from holdfast._features.watchdog.partial_failure import partial_failure
from holdfast._features.watchdog.repeated_actions import duplicate_action, looping
from holdfast._features.watchdog.runaway_cost import runaway_cost
from holdfast._features.watchdog.stuck import stuck
from holdfast._features.watchdog.subject import Seen

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
