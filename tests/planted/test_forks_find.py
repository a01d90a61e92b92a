"""Planted bugs in forks, each of which must be noticed: by the scenario below, which holds without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast import effect, flow, idempotency_key, step, testing, turns
from holdfast._engine.journal import fork_history
from holdfast._features.rollback import model as rollback
from holdfast._operator.act import fork
from holdfast._runtime.execution.execution import Execution
from holdfast._stores import lineage
from holdfast.errors import ConfirmationRequired, HoldfastError

executed: Counter[str] = Counter()
keys: list[str] = []


@step(name="planted-fork-think")
def think(messages: list[str], topic: str) -> str:
    executed[f"think {len(messages)}"] += 1
    return f"{topic} {len(messages)} " + "m" * 700


@effect(name="planted-fork-pay")
def pay(amount: int) -> str:
    executed["pay"] += 1
    keys.append(idempotency_key())
    return "paid"


@flow(name="planted-fork-agent")
def agent(topic: str) -> list[str]:
    for messages in turns(["begin"]):
        messages.append(think(messages, topic))
        if len(messages) > 20:
            break
    pay(7)
    return [text[:9] for text in messages]


def scenario() -> None:
    executed.clear()
    keys.clear()
    with testing.store(url="sqlite:") as store:
        told = agent.run("r", "old")
        with pytest.raises(ConfirmationRequired):
            store.fork("r", "f", before="turns[15]/planted-fork-think")
        store.fork("r", "f", before="turns[15]", input={"topic": "new"}, confirm=True)
        executed.clear()
        assert agent.run("f", "new") == [*told[:16], *(f"new {n} mm" for n in range(16, 21))]
        assert executed == {"pay": 1, **{f"think {n}": 1 for n in range(16, 21)}}
        assert len(set(keys)) == 2
        row = store._backend.get("f")
        assert row is not None
        stored = store._backend.whole(row).chunks.values()
        assert not any(b"old " in body for body in stored)
        executed.clear()
        store.rollback("f", to="turns[17]/planted-fork-think", confirm=True)
        store.resume("f")
        agent.run("f", "new")
        assert executed == {"think 19": 1, "think 20": 1, "pay": 1}
        origin = store._backend.get("r")
        assert origin is not None
        assert not store._backend.forget(origin, store._backend.now_us())
        assert store.verify() == []


def nothing_is_listed(patch: pytest.MonkeyPatch) -> None:
    """Effects that would be repeated are not said."""
    patch.setattr(fork_history, "_what_happened", lambda *_: None)


def keys_are_shared(patch: pytest.MonkeyPatch) -> None:
    """A fork shows the keys of the run that it came from."""
    derived = Execution.derived_key

    def key(self: Execution, step: str) -> str:
        self.run_id, own = "r", self.run_id
        try:
            return derived(self, step)
        finally:
            self.run_id = own

    patch.setattr(Execution, "derived_key", key)


def chunks_are_its_own(patch: pytest.MonkeyPatch) -> None:
    """The chunks of a fork are looked for in the fork alone."""

    def own(store: Any, row: Any) -> Callable[[int], Any]:
        return lambda number: store.chunks(row.run_no, number)

    patch.setattr(lineage, "chunks_of", own)


def numbers_begin_anew(patch: pytest.MonkeyPatch) -> None:
    """A fork gives out chunk numbers that the other run has given out."""
    made = fork.make

    def begun(store: Any, planned: Any) -> Any:
        planned.new.next_chunk = 1
        return made(store, planned)

    patch.setattr(fork, "make", begun)


def too_much_is_borrowed(patch: pytest.MonkeyPatch) -> None:
    """What stands behind the cut comes along too."""
    cut_before = fork_history.cut_before

    def cut(run_id: str, before: str, entries: Any, borrowed: Any) -> Any:
        made = cut_before(run_id, before, entries, borrowed)
        made.kept = made.past.records = made.whole.records
        made.seq = entries[-1].seq
        return made

    patch.setattr(fork_history, "cut_before", cut)


def nothing_is_borrowed(patch: pytest.MonkeyPatch) -> None:
    """A fork begins from the beginning."""
    begin = fork_history._begin

    def empty(history: Any, borrowed: Any) -> None:
        begin(history, msgspec.structs.replace(borrowed, parts=[]))

    patch.setattr(fork_history, "_begin", empty)


def states_are_lost(patch: pytest.MonkeyPatch) -> None:
    """Rolled back inside a loop, a fork begins with the first turn."""
    patch.setattr(rollback, "starting_over", lambda _history, loops: {"loops": loops})


def forks_are_not_seen(patch: pytest.MonkeyPatch) -> None:
    """A run is removed although a fork stands on it."""
    patch.setattr(lineage, "written_by_forks", lambda _run_id: ("", ""))


PLANTED = [
    nothing_is_listed,
    keys_are_shared,
    chunks_are_its_own,
    numbers_begin_anew,
    too_much_is_borrowed,
    nothing_is_borrowed,
    states_are_lost,
    forks_are_not_seen,
]


def test_without_a_bug() -> None:
    scenario()


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_each_is_noticed(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, HoldfastError, pytest.fail.Exception)):
        scenario()
