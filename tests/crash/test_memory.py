"""Killed at any boundary, a memory and the journal say the same: both, or none."""

from __future__ import annotations

import holdfast
from tests.crash.harness import BOTH_STORES, World, assert_sound

OUTCOMES = {
    "step": ("step_completed", "remember_step"),
    "effect": ("step_completed", "remember_effect"),
    "flow": ("value_recorded", "memory.set"),
    "once": ("value_recorded", "memory.set#2"),
    "transaction": ("step_completed", "remember_transaction"),
}
RESULT = ["step", "effect", True, False, "transaction", 1, 1]
POINTS = [
    *("inside step", "inside effect", "inside transaction"),
    # The outcome of the step is the first commit, that of the effect the third; then the flow's own.
    *("before append 1", "after append 1", "before append 3", "after append 3"),
    *("before append 4", "after append 4", "before append 5", "after append 5"),
]


def differences(store: holdfast.types.Store, run_id: str) -> list[str]:
    """Return where the memory of a run and its journal say different things."""
    entries = store.history(run_id) if store._backend.get(run_id) is not None else []
    recorded = {(entry.kind, entry.step) for entry in entries}
    remembered = {entry.key: entry.version for entry in store.memory(run_id).items()}
    wrong = [
        f"{run_id}: {key} is {'recorded' if outcome in recorded else 'remembered'} only"
        for key, outcome in OUTCOMES.items()
        if (outcome in recorded) != (key in remembered)
    ]
    return wrong + [f"{run_id}: {key} twice" for key, version in remembered.items() if version > 1]


@BOTH_STORES
def test_killed_round_every_write(world: World) -> None:
    for point in POINTS:
        world.crash("remember.py", point.replace(" ", "-"), at=point)
    with world.store() as store:
        for point in POINTS:
            assert differences(store, point.replace(" ", "-")) == []
        assert store.verify() == []


@BOTH_STORES
def test_taken_up_again_it_writes_once(world: World) -> None:
    for point in ("inside effect", "after append 4"):
        world.crash("remember.py", "r", at=point)
    assert world.run("remember.py", "r").result == RESULT
    with world.store() as store:
        assert differences(store, "r") == []
        assert_sound(store)


def test_a_memory_that_is_written_apart_is_found(world: World) -> None:
    """The planted bug: what a step writes does not wait for its outcome."""
    world.crash("remember.py", "r", at="inside step", plant="apart")
    with world.store() as store:
        assert differences(store, "r") == ["r: step is remembered only"]
