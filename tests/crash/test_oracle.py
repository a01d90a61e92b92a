"""Planted bugs: the oracle of the random kills must see each of them, or it proves nothing."""

from __future__ import annotations

import datetime as dt
import json
from dataclasses import dataclass, field
from typing import Any, cast

import holdfast
from tests.crash.harness import World
from tests.crash.kills import EFFECTS, STEPS, compare, compare_books

NOON = 1_700_000_000.0


@dataclass
class Planted:
    """One entry of a journal that was made up."""

    seq: int
    kind: str
    step: str
    body: dict[str, Any]
    at: dt.datetime


@dataclass
class FakeStore:
    """A store with one completed run that did everything right, until it is tampered with."""

    entries: list[Planted] = field(default_factory=list)
    status: str = "completed"

    def history(self, run: str) -> list[Planted]:
        return self.entries

    def get(self, run: str) -> FakeStore:
        return self

    def add(self, kind: str, label: str, **body: Any) -> None:
        at = dt.datetime.fromtimestamp(NOON + len(self.entries), dt.UTC)
        self.entries.append(Planted(len(self.entries) + 1, kind, f"key of {label}", body, at))


def executed(world: World, label: str, at: float, note: str) -> None:
    with world.ledger.open("a") as file:
        file.write(json.dumps(["m0", label, 1, at, note]) + "\n")


def faultless(world: World) -> FakeStore:
    store = FakeStore()
    for label in (*STEPS, *EFFECTS):
        store.add("step_started", label, args={"label": label})
        executed(world, label, NOON + len(store.entries) - 0.5, note=f"note of {label}")
        result = f"note of {label}" if label in STEPS else {"charge": f"ch of {label}"}
        store.add("step_completed", label, result=result)
    return store


def found(store: FakeStore, world: World) -> str:
    return "\n".join(compare(cast("holdfast.types.Store", store), "m0", world))


def test_nothing_wrong(world: World) -> None:
    assert found(faultless(world), world) == ""


def test_executed_after_its_outcome(world: World) -> None:
    store = faultless(world)
    executed(world, "turn-1", NOON + 1000, note="note of turn-1")
    assert "turn-1 was executed after" in found(store, world)


def test_two_outcomes(world: World) -> None:
    store = faultless(world)
    store.add("step_completed", "first", result="note of first")
    assert "first has two outcomes" in found(store, world)


def test_outcome_of_an_execution_that_was_not_the_last(world: World) -> None:
    store = faultless(world)
    store.entries[1].body["result"] = "made up"
    assert "first has the outcome of another execution" in found(store, world)


def test_never_executed(world: World) -> None:
    store = faultless(world)
    lines = world.ledger.read_text().splitlines()
    world.ledger.write_text("\n".join(line for line in lines if "item-2" not in line) + "\n")
    assert "item-2 has an outcome and was never executed" in found(store, world)


def test_more_executions_than_intents(world: World) -> None:
    store = faultless(world)
    executed(world, "tool-0", NOON, note="")
    assert "tool-0 was executed 2 times on 1 intents" in found(store, world)


def test_lost_outcome_gap_and_status(world: World) -> None:
    store = faultless(world)
    del store.entries[1]
    store.status = "running"
    text = found(store, world)
    for what in ("gap", "running", "without an outcome: {'first'}", "not recorded: {'first'}"):
        assert what in text


def test_the_books_of_the_server() -> None:
    once = {"requests": 2, "charges": [{"charge": "ch-1"}]}
    twice = {"requests": 2, "charges": [{"charge": "ch-2"}, {"charge": "ch-3"}]}
    assert compare_books({"k": once}, {"ch-1"}, effects=1) == []
    assert compare_books({"k": twice}, {"ch-2"}, effects=1)
    assert compare_books({"k": once}, set(), effects=1)
    assert compare_books({"k": once}, {"ch-1"}, effects=2)
