"""Runs in which the watchdog finds something, one or more for each kind of finding."""

from __future__ import annotations

import json

from holdfast._engine.journal.entries import Kind
from holdfast._features.watchdog import store as watchdog
from tests.model.memory_store import MemoryStore
from tests.ops.cases import case
from tests.ops.journals import Journal

FLOOR_S = 300


def _later(store: MemoryStore, seconds: float) -> None:
    store.world.clock.advance(seconds)  # type: ignore[attr-defined]


def _noted(store: MemoryStore, did: str) -> None:
    """The watchdog writes what it finds into the journal, and does something about it."""
    row = store.get("r")
    assert row is not None
    for finding in watchdog.Survey(store).findings(row):
        watchdog.tell(store, finding, did)


@case
def found_stuck_at_a_step(store: MemoryStore):
    journal = Journal(store, "r").step("search").intent("mail", {"to": "kim"})
    _later(store, 6 * FLOOR_S + 1)
    store.pulse(journal.owner, json.dumps({}), [])


@case
def found_stuck_since_nobody_has_it(store: MemoryStore):
    Journal(store, "r").step("search").released()
    _later(store, FLOOR_S + 1)


@case
def found_looping(store: MemoryStore):
    journal = Journal(store, "r")
    for number in range(10):
        journal.step("search" if number == 0 else f"search#{number + 1}")


@case
def found_looping_and_held_for_it(store: MemoryStore):
    journal = Journal(store, "r")
    for number in range(10):
        journal.step("search" if number == 0 else f"search#{number + 1}")
    journal.released()
    _noted(store, "hold")


@case
def found_duplicate_action(store: MemoryStore):
    Journal(store, "r").effect("mail").effect("mail#2").released()


@case
def found_duplicate_action_in_a_completed_run(store: MemoryStore):
    Journal(store, "r").effect("mail").effect("mail#2").completed()


@case
def found_partial_failure(store: MemoryStore):
    journal = Journal(store, "r").effect("book", undo=True).effect("mail").failing("pay")
    journal.failed("pay")


@case
def found_partial_failure_of_branches(store: MemoryStore):
    journal = Journal(store, "r").step("each[0]/search").failing("each[1]/search")
    journal.step("each[2]/search")


@case
def found_runaway_cost(store: MemoryStore):
    journal = Journal(store, "r", watch={"usd_nanos": 1_000_000_000})
    for number in range(4):
        key = "think" if number == 0 else f"think#{number + 1}"
        journal.step(key, args={"n": number}, usage={"cost": 0.3})
        _later(store, 1)


@case
def found_runaway_cost_that_grows(store: MemoryStore):
    journal = Journal(store, "r")
    for number in range(12):
        key = "think" if number == 0 else f"think#{number + 1}"
        journal.step(key, args={"n": number}, usage={"cost": 0.01 * 2**number})
        _later(store, 1)


@case
def found_stuck_at_a_plain_step(store: MemoryStore):
    journal = Journal(store, "r").step("search")
    draft = journal.draft(Kind.STEP_STARTED, "think", 1)
    draft.position, draft.args_digest = 2, b"a" * 16
    journal.write(draft)
    _later(store, 6 * FLOOR_S + 1)
    store.pulse(journal.owner, json.dumps({}), [])
