"""What the simulation found, told again with the public API: small enough to be read."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import effect, flow, step, testing, turns
from holdfast.errors import RunHeld
from holdfast.testing.killed_processes import Ledger, Work, live
from tests.model.memory_store import MemoryStore, MemoryWorld

called: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    called.clear()


@step(name="found-a")
def a() -> str:
    called.append("a")
    return "a"


@step(name="found-b")
def b(turn: int) -> int:
    called.append(f"b{turn}")
    return turn + 1


@effect(name="found-pay")
def pay() -> str:
    called.append("pay")
    return "paid"


def loop() -> int:
    for state in turns({"turn": 0}, max_turns=9):
        state["turn"] = b(state["turn"])
        if state["turn"] == 4:
            return state["turn"]
    raise AssertionError


today: list[Any] = []
"""The flow's code as it is now."""


@flow(name="found")
def found() -> Any:
    return today[0]()


def lives(versions: list[tuple[Any, int | None]]) -> list[Any]:
    """Execute one run by one version of its flow after another, each dying at its n-th write."""
    world = MemoryWorld()
    clock = testing.FakeClock(auto=True)
    ends = []
    for body, dies_at in versions:
        today[:] = [body]
        work = Work(found, "r", (), {})
        ends.append(live(work, MemoryStore(world), clock, Ledger("r"), dies_at))
    return ends


def test_a_step_that_changed_places_with_a_loop_is_a_divergence():
    """I3, I15: a loop has no record at its place, so the change was not seen."""

    def first() -> Any:
        a()
        return loop()

    def second() -> Any:
        loop()
        return a()

    ends = lives([(first, 5), (second, None)])
    assert isinstance(ends[1].error, RunHeld)
    assert called.count("a") == 1


def test_a_snapshot_never_hides_what_is_no_part_of_its_loop():
    """I3: the effect before the loop was once recorded between two turns, and called again. Now the
    loop has a record of its own at its place, and the change is held before it does anything."""

    def first() -> Any:
        return loop()

    def second() -> Any:
        pay()
        return loop()

    ends = lives([(first, 4), (second, 5), (second, None)])
    assert isinstance(ends[1].error, RunHeld)
    assert called.count("pay") == 0
