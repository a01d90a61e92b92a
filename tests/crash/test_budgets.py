"""Fault 92: a budget of $1 and steps of $0.30, killed and resumed; its counters survive."""

from __future__ import annotations

from collections import Counter

import pytest

from holdfast import Budget
from tests.crash.harness import BOTH_STORES, World, assert_sound

pytestmark = BOTH_STORES

STEPS = 5
AFFORDED = {"1": 1, "2": 1, "3": 1}
"""Three steps of $0.30 are all that $1 pays."""


def assert_held(world: World, shape: str, *, spent: float) -> None:
    ended = world.run("spending.py", shape)
    assert ended.error == "RunHeld", ended
    assert ended.said["reason"] == "budget"
    with world.store() as store:
        budget = store.get("r").budget
        assert budget is not None
        assert (budget.usd, budget.spent_usd) == (1.0, spent)
        assert_sound(store)


def goes_on(world: World, shape: str) -> Counter[str]:
    with world.store() as store:
        assert store.set_budget("r", budget=Budget(usd=3), actor="ada").status == "queued"
    assert world.run("spending.py", shape).result == sum(range(1, STEPS + 1))
    with world.store() as store:
        assert_sound(store)
        assert store.get("r").status == "completed"
    return world.counts()


def test_fault_92_killed_between_steps_it_stops_where_it_would_have(world):
    for number in (1, 2, 3):
        world.crash("spending.py", "step", at=f"after {number}")
    assert_held(world, "step", spent=0.9)
    assert world.counts() == AFFORDED
    assert goes_on(world, "step") == {str(number): 1 for number in range(1, STEPS + 1)}


@pytest.mark.parametrize("shape", ["step", "effect", "async"])
def test_fault_92_killed_inside_steps_it_spends_no_more_than_the_kills_explain(world, shape):
    world.crash("spending.py", shape, at="in 1")
    world.crash("spending.py", shape, at="in 2")
    assert_held(world, shape, spent=0.9)
    assert world.counts() == {"1": 2, "2": 1}, "two died, and the third was all that was left"
    counts = goes_on(world, shape)
    assert counts == {"1": 2, "2": 2, "3": 1, "4": 1, "5": 1}
    with world.store() as store:
        budget = store.get("r").budget
        assert budget.spent_usd == pytest.approx(0.30 * counts.total()), "every execution counts"


def test_fault_92_killed_while_it_is_raised(world):
    assert_held(world, "step", spent=0.9)
    for times, point in enumerate(("recorded", "raised"), start=1):
        world.crash("spending.py", "raise", at=point)
        with world.store() as store:
            assert store.get("r").status == "held"
            kinds = [entry.kind for entry in store.history("r")]
            assert kinds.count("budget_set") == times, "nothing is raised without a record"
    assert world.run("spending.py", "raise").result == "queued", "the same again does the rest"
    assert world.run("spending.py", "step").result == sum(range(1, STEPS + 1))
    assert world.counts() == {str(number): 1 for number in range(1, STEPS + 1)}
