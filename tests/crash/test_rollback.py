"""A rollback is killed half way: what is undone is undone once as declared, in the reverse order.

The payment server in another process keeps the order in which requests came, per key.
"""

from __future__ import annotations

from typing import Any

import pytest

from holdfast import NOT_DONE, Done, Retry, effect, flow, testing, turns
from holdfast._operator.act import run_rollback
from holdfast.errors import Rollback, RunHeld
from tests import sweeps
from tests.crash.harness import BOTH_STORES, World, assert_sound
from tests.crash.payments import Client

AMOUNTS = [1, 2, 3, -3, -2, -1]
"""What the server is asked for: three bookings, then their undos, the last one first."""


def amounts(payments: Client) -> list[int]:
    """Return what was really paid, in the order in which the server first heard of it."""
    return [charge["amount"] for seen in payments.state().values() for charge in seen["charges"]]


def requests(payments: Client) -> list[int]:
    """Return how often each key was seen, in the order in which it first came."""
    return [seen["requests"] for seen in payments.state().values()]


@BOTH_STORES
@pytest.mark.parametrize(
    ("at", "seen"),
    [
        ("before no car", [1, 1, 1, 1, 1, 1]),
        ("after no car", [1, 1, 1, 2, 1, 1]),
        ("before no hotel", [1, 1, 1, 1, 1, 1]),
        ("after no hotel", [1, 1, 1, 1, 2, 1]),
        ("after no flight", [1, 1, 1, 1, 1, 2]),
    ],
)
def test_fault_88_killed_in_an_undo(
    world: World, payments: Client, at: str, seen: list[int]
) -> None:
    """One that says `retry` is sent again under its key; the others are not touched."""
    world.crash("undoing.py", "raise", at=at)
    ended = world.run("undoing.py", "raise")
    assert (ended.error, ended.said["reason"]) == ("RunRolledBack", "it rains")
    assert amounts(payments) == AMOUNTS
    assert requests(payments) == seen
    assert world.status() == "rolled_back"
    with world.store() as store:
        assert_sound(store)


@BOTH_STORES
def test_an_undo_without_a_policy_is_held_and_settled(world: World, payments: Client) -> None:
    world.crash("undoing.py", "ask", at="after no hotel")
    ended = world.run("undoing.py", "ask")
    assert (ended.error, ended.said["step"]) == ("RunHeld", "undo/book_hotel")
    with world.store() as store:
        store.settle("r", "undo/book_hotel", Done(None), actor="kim")
    assert world.run("undoing.py", "ask").error == "RunRolledBack"
    assert amounts(payments) == AMOUNTS
    assert requests(payments) == [1] * 6


@BOTH_STORES
def test_a_completed_run_is_rolled_back_by_another_process(world: World, payments: Client) -> None:
    """Asked for where the flow is not known; killed twice on the way."""
    assert world.run("undoing.py", "complete").result == "booked"
    with world.store() as store:
        answer = run_rollback.rollback(store._backend, "r", actor="kim", reason="it rains")
        assert answer.goes_on
    world.crash("undoing.py", "complete", at="before no car")
    world.crash("undoing.py", "complete", at="after no flight")
    assert world.run("undoing.py", "complete").error == "RunRolledBack"
    assert amounts(payments) == AMOUNTS
    assert world.run("undoing.py", "complete").error == "RunRolledBack"
    assert requests(payments) == [1, 1, 1, 1, 1, 2]


@BOTH_STORES
def test_a_live_process_is_asked_and_killed_in_the_undo(world: World, payments: Client) -> None:
    """It waits for something that never comes; a message from outside makes it take all back."""
    script = world.start("undoing.py", "wait", kill_at="after no car").until("waiting")
    with world.store() as store:
        answer = store.rollback("r", actor="kim", reason="it rains")
        assert answer.flow == "travel"
    assert script.end().killed
    ended = world.run("undoing.py", "wait")
    assert (ended.error, ended.said["reason"]) == ("RunRolledBack", "it rains")
    assert amounts(payments) == AMOUNTS
    assert requests(payments) == [1, 1, 1, 2, 1, 1]
    asked = [entry for entry in world.history() if entry.kind == "rollback_requested"]
    assert [entry.body["actor"] for entry in asked] == ["kim"]


@BOTH_STORES
def test_to_a_step_killed_half_way(world: World, payments: Client) -> None:
    assert world.run("undoing.py", "complete").result == "booked"
    with world.store() as store:
        run_rollback.rollback(store._backend, "r", actor="kim", to="book_flight")
    world.crash("undoing.py", "complete", at="after no hotel")
    ended = world.run("undoing.py", "complete")
    assert (ended.error, ended.said["reason"]) == ("RunHeld", "paused")
    assert amounts(payments) == [1, 2, 3, -3, -2]
    with world.store() as store:
        store.resume("r", actor="kim")
    assert world.run("undoing.py", "complete").result == "booked"
    assert amounts(payments) == [1, 2, 3, -3, -2, 2, 3]
    with world.store() as store:
        assert_sound(store)


# -- at every write ----------------------------------------------------------------------------

made: list[str] = []


@effect(name="rbm-a", on_doubt="retry")
def first(n: int) -> str:
    made.append("a")
    return "A"


@first.undo(on_doubt="retry", retry=Retry(attempts=5, initial_wait_s=0))
def not_first(result: str, n: int) -> None:
    made.append("-a")


@effect(name="rbm-b", key="rbm:{n}", on_doubt="retry")
def second(n: int) -> str:
    made.append("b")
    return "B"


@second.undo
def not_second(result: str, n: int) -> None:
    made.append("-b")


@effect(name="rbm-c", on_doubt="retry")
def third(n: int) -> str:
    made.append("c")
    return "C"


@third.undo(on_doubt="retry", retry=Retry(attempts=5, initial_wait_s=0))
async def not_third(result: str, n: int) -> None:
    made.append("-c")


@flow(name="rbm-flow")
def there_and_back(n: int) -> None:
    for state in turns({"turn": 0}, max_turns=5):
        first(state["turn"])
        state["turn"] += 1
        if state["turn"] == 2:
            break
    second(n)
    third(n)
    raise Rollback("as it was")


@flow(name="rbm-async-flow")
async def there_and_back_async(n: int) -> None:
    await first.aio(n)
    await second.aio(n)
    await third.aio(n)
    raise Rollback("as it was")


def in_order(_result: Any, _point: Any) -> None:
    """Each undo comes after the undos of what was done later."""
    undos = [what for what in made if what.startswith("-")]
    first_of = [undos.index(what) for what in ("-c", "-b", "-a") if what in undos]
    assert first_of == sorted(first_of), made
    assert set(undos) == {"-a", "-b", "-c"}, made
    assert max(made.index(what) for what in "abc") < made.index("-c")


def not_done(held: RunHeld) -> Any:
    assert held.step == "undo/rbm-b", held
    return Done(None) if "-b" in made else NOT_DONE


@pytest.mark.parametrize("flow_", [there_and_back, there_and_back_async])
def test_killed_at_every_write(flow_: Any) -> None:
    report = testing.crash_matrix(flow_, 7, setup=made.clear, check=in_order, settle=not_done)
    assert report.result == "run 'crash-matrix' was rolled back: as it was"
    assert any("undo/rbm-b" in point.held for point in report.points)


@pytest.mark.sweep
def test_killed_twice_and_by_a_real_signal() -> None:
    testing.crash_matrix(
        there_and_back_async,
        7,
        setup=made.clear,
        check=in_order,
        settle=not_done,
        crashes=2,
        max_points=sweeps.size(2, 4),
    )
    testing.crash_matrix(
        there_and_back,
        7,
        kill="process",
        settle=lambda _held: NOT_DONE,
        max_points=sweeps.size(3, 6),
    )
