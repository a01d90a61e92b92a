"""Bugs that can be planted in the processes of a scene, by name: `CRASH_PLANT=the_clock_stands_still`.

Most of them are those that the simulation has to find. Here they are in processes that are killed, and
`tests/planted` shows that each is noticed: a scene whose oracle cannot fail proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from holdfast._runtime.execution import execute as finishing
from tests.planted import test_simulation_finds as simulated
from tests.simulation import test_changed_loops as changed


def stops_come_after_the_release(patch: pytest.MonkeyPatch) -> None:
    """A run that is to stop is given back first, and a claim reads the journal before the inbox."""
    simulated.stops_come_after_the_release(patch)
    patch.setattr(finishing, "carried_out", lambda execution, end: end)


PLANTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    plant.__name__: plant
    for plant in (
        stops_come_after_the_release,
        simulated.signals_are_not_taken,
        simulated.signals_are_overlooked,
        simulated.the_clock_stands_still,
        simulated.views_are_compared_before_the_write,
        simulated.forks_are_compared_afterwards,
        changed.by_number,
    )
}


def plant(name: str) -> None:
    """Plant one of them in this process."""
    PLANTS[name](pytest.MonkeyPatch())
