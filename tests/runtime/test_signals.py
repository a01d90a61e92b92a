"""Signals: kept if early, taken once, refused after the end, and nothing lost on the way."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from holdfast import aio, each, flow, gather, step, testing, turns, wait_for_signal
from holdfast.errors import RunEnded, RunNotFound, UsageError, WaitTimedOut
from holdfast.testing import FakeClock, PrivateStore
from tests.runtime.facts import is_free, until


@dataclasses.dataclass
class Order:
    """What a signal may bring."""

    number: int
    item: str


@step(name="sig-note")
def note(text: str) -> str:
    return text


@flow(name="sig-one")
def one() -> Any:
    return wait_for_signal("paid")


@flow(name="sig-aone")
async def aone() -> Any:
    return await aio.wait_for_signal("paid")


@flow(name="sig-two")
def two() -> list[Any]:
    return [wait_for_signal("paid"), wait_for_signal("paid")]


@flow(name="sig-order")
def order() -> Order:
    return wait_for_signal("order", type=Order)


@flow(name="sig-lines")
def lines() -> list[Any]:
    return list(gather(lambda: wait_for_signal("paid"), lambda: wait_for_signal("paid")))


@flow(name="sig-alines")
async def alines() -> list[Any]:
    return list(await aio.gather(aio.wait_for_signal("paid"), aio.wait_for_signal("paid")))


@flow(name="sig-turns")
def in_turns() -> list[Any]:
    nothing: dict[str, list[Any]] = {"got": []}
    for state in turns(nothing, max_turns=5):
        state["got"].append(wait_for_signal("more"))
        if len(state["got"]) == 3:
            return state["got"]
    raise AssertionError


@flow(name="sig-each")
def in_branches() -> list[Any]:
    return each(lambda name: wait_for_signal(name), ["a", "b", "c"])


@flow(name="sig-timeout")
def impatient() -> list[str]:
    said: list[str] = []
    for _ in range(3):
        try:
            said.append(wait_for_signal("late", timeout="1m"))
        except WaitTimedOut:
            said.append("nothing")
    return said


@flow(name="sig-atimeout")
async def aimpatient() -> list[str]:
    said: list[str] = []
    for _ in range(2):
        try:
            said.append(await aio.wait_for_signal("late", timeout=60))
        except WaitTimedOut as error:
            said.append(str(error))
    return said


@pytest.mark.parametrize("flow", [one, aone], ids=["sync", "async"])
def test_a_signal_is_taken(store: PrivateStore, flow: Any) -> None:
    handle = flow.start("r")
    store.wait_until("r", waiting="signal:paid")

    sent = store.signal("r", "paid", {"amount": 3}, actor="ana")

    assert sent.new
    assert handle.result(timeout=20) == {"amount": 3}
    [received] = [entry for entry in store.history("r") if entry.kind == "signal_received"]
    assert (received.body["actor"], received.step) == ("ana", "wait:paid")
    assert [(it.name, it.status) for it in store.get("r").signals] == [("paid", "received")]


def test_one_that_comes_before_the_wait_is_kept(store: PrivateStore) -> None:
    one.submit("r")
    store.signal("r", "paid", 1)

    assert one.run("r") == 1


def test_a_duplicate_is_acknowledged_and_not_delivered_again(store: PrivateStore) -> None:
    handle = two.start("r")

    first = store.signal("r", "paid", 1, signal_id="a")
    again = store.signal("r", "paid", 2, signal_id="a")
    store.wait_until("r", waiting="signal", done="wait:paid")
    after = store.signal("r", "paid", 3, signal_id="a")
    store.signal("r", "paid", 4, signal_id="b")

    assert [first.new, again.new, after.new] == [True, False, False]
    assert handle.result(timeout=20) == [1, 4]


def test_after_the_end_it_is_refused_and_what_was_never_taken_is_expired(
    store: PrivateStore,
) -> None:
    one.submit("r")
    for number in range(3):
        store.signal("r", "paid", number, signal_id=str(number))
    store.signal("r", "never asked for")
    one.run("r")

    with pytest.raises(RunEnded, match="run 'r' is completed: nobody would read signal 'paid'"):
        store.signal("r", "paid", 9)
    assert not store.signal("r", "paid", signal_id="1").new
    assert [it.status for it in store.get("r").signals] == [
        "received",
        "expired",
        "expired",
        "expired",
    ]
    with pytest.raises(RunNotFound):
        store.signal("nobody", "paid")


def test_a_payload_that_does_not_fit_is_noted_and_the_run_goes_on_waiting(
    store: PrivateStore,
) -> None:
    handle = order.start("r")
    store.signal("r", "order", {"number": "seven"}, actor="bob")
    store.signal("r", "order", {"number": 7, "item": "tea"})

    assert handle.result(timeout=20) == Order(7, "tea")
    [refused] = [entry for entry in store.history("r") if entry.kind == "message_discarded"]
    assert "number" in refused.body["why"]
    assert refused.body["actor"] == "bob"
    assert [(it.status, bool(it.why)) for it in store.get("r").signals] == [
        ("refused", True),
        ("received", False),
    ]
    until(lambda: not store._engine.executing())
    assert order.run("r") == Order(7, "tea")


@pytest.mark.parametrize("flow", [lines, alines], ids=["sync", "async"])
def test_two_lines_that_wait_for_one_name_get_one_each(store: PrivateStore, flow: Any) -> None:
    handle = flow.start("r")
    store.wait_until("r", waiting="signal")
    store.signal("r", "paid", 1)
    store.signal("r", "paid", 2)

    result = handle.result(timeout=20)

    assert sorted(result) == [1, 2]
    assert store.get("r").result == result


def test_in_turns_and_in_branches(store: PrivateStore) -> None:
    looped, branched = in_turns.start("turns"), in_branches.start("each")
    for number in range(3):
        store.signal("turns", "more", number)
    for name in "cab":
        store.signal("each", name, name.upper())

    assert looped.result(timeout=20) == [0, 1, 2]
    assert branched.result(timeout=20) == ["A", "B", "C"]


@pytest.mark.parametrize("url", ["memory:", "sqlite:"])
def test_a_wait_that_times_out_leaves_the_signal_to_the_next(url: str) -> None:
    with testing.store(clock=FakeClock(), url=url) as store:
        handle = impatient.start("r")
        store.wait_until("r", waiting="signal")
        store.clock.advance(61)
        store.wait_until("r", done="wait:late", waiting=True)
        store.signal("r", "late", "here")
        store.wait_until("r", done="wait:late#2", waiting=True)
        store.clock.advance(61)

        assert handle.result(timeout=20) == ["nothing", "here", "nothing"]
        until(lambda: not store._engine.executing())
        assert impatient.run("r") == ["nothing", "here", "nothing"]


def test_time_outs_in_async_flows() -> None:
    with testing.store(clock=FakeClock()) as store:
        handle = aimpatient.start("r")
        for key in ("wait:late", "wait:late#2"):
            store.wait_until("r", waiting="signal")
            store.clock.advance_to_next()
            store.wait_until("r", done=key)

        assert handle.result(timeout=20) == [
            "wait:late: signal 'late' did not come in time",
            "wait:late#2: signal 'late' did not come in time",
        ]


def test_a_worker_unloads_the_run_and_takes_it_up_for_the_signal(store: PrivateStore) -> None:
    two.submit("r")
    with store.worker(flows=[two], concurrency=1):
        until(lambda: (row := store._backend.get("r")) and row.waiting_on and row.owner is None)
        store.signal("r", "other name")
        store.signal("r", "paid", 1)
        store.wait_until("r", done="wait:paid", waiting="signal")
        until(lambda: is_free(store))
        store.signal("r", "paid", 2)
        assert store.handle("r").result(timeout=20) == [1, 2]

    waits = [entry for entry in store.history("r") if entry.kind == "run_waiting"]
    assert len(waits) >= 2
    assert not store.verify()


def test_what_is_said_wrongly(store: PrivateStore) -> None:
    one.submit("r")
    with pytest.raises(UsageError, match="name of a signal"):
        store.signal("r", "")
    with pytest.raises(UsageError, match="signal_id.*length <= 200"):
        store.signal("r", "paid", signal_id="x" * 201)
    with pytest.raises(UsageError, match="`actor`"):
        store.signal("r", "paid", actor=" ")
    with pytest.raises(UsageError, match="inside a flow"):
        wait_for_signal("paid")

    async def outside() -> None:
        await aio.wait_for_signal("paid")

    with pytest.raises(UsageError, match="inside a flow"):
        asyncio.run(outside())
