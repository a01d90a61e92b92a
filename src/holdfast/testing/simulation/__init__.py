"""A seeded simulation of several workers on one store, with checkers for the promises.

    python -m holdfast.testing.simulation --seeds 1000

A seed decides everything: the flows, who makes the next move, who dies, stalls past its lease and
comes back, how the clock jumps, what the world answers. The same seed is the same schedule, bit
for bit, so a seed that fails is a test case. Runs, scripts, admission and endings are the real
ones; only threads, time and chance are the simulation's own.

    programs   the flows, as data          workers    processes, and the third driver
    outside    what really happened        laws       what must hold after every move
    scheduler  who moves next
"""

from __future__ import annotations

from holdfast.testing.simulation.laws import Violation
from holdfast.testing.simulation.scheduler import Faults, Outcome, simulate

__all__ = ["Faults", "Outcome", "Violation", "simulate"]
