"""Branches have an identity: no branch gets what is recorded for another item or call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import each, effect, flow, gather, turns
from holdfast.errors import RunHeld
from tests.runtime.stops import Stop, interrupted

sent: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_sent():
    sent.clear()


@effect(name="marks-send")
def send(kind: str, i: int) -> str:
    sent.append(f"{kind} {i}")
    return kind


def work(kind: str) -> str:
    """Nothing in it but the item tells one of its loops from another."""
    for state in turns({"i": 0}, max_turns=9, name="work"):
        if state["i"] == 2:
            break
        send(kind, state["i"])
        state["i"] += 1
    return kind


def refunds() -> str:
    return work("refunds")


def invoices() -> str:
    return work("invoices")


class Client:
    """An item that cannot be stored."""

    def __init__(self, kind: str) -> None:
        self.kind = kind


def of_client(client: Client) -> str:
    return work(client.kind)


class Changing:
    """A flow whose body can be replaced; it is stopped once, behind the first body."""

    def __init__(self, before: Callable[[], Any]) -> None:
        self.body = before
        self.stop = Stop()

        @flow(name="marks-changing")
        def changing() -> Any:
            found = self.body()
            self.stop.here()
            return found

        self.flow = changing
        interrupted(lambda: changing.run("r"))
        sent.clear()

    def run(self, body: Callable[[], Any]) -> Any:
        self.body = body
        return self.flow.run("r")


def made(kind: str) -> Callable[[], str]:
    return lambda: work(kind)


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[], Any], str]] = {
    "an item at the front": (
        lambda: each(work, ["a", "b"]),
        lambda: each(work, ["new", "a", "b"]),
        r"each\[0\] for another item, which is now item 1; .* which is new",
    ),
    "items in another order": (
        lambda: each(work, ["a", "b"]),
        lambda: each(work, ["b", "a"]),
        r"each\[0\] for another item, which is now item 1; .* which was item 1",
    ),
    "another item": (
        lambda: each(work, ["a", "b"]),
        lambda: each(work, ["a", "c"]),
        r"each\[1\] for another item, which is not among the items now",
    ),
    "a function that is bound to another value": (
        lambda: each(functools.partial(lambda x, y: work(x), "a"), ["x"]),
        lambda: each(functools.partial(lambda x, y: work(x), "b"), ["x"]),
        r"each\[0\] for another item",
    ),
    "partials in another order": (
        lambda: gather(functools.partial(work, "a"), functools.partial(work, "b")),
        lambda: gather(functools.partial(work, "b"), functools.partial(work, "a")),
        r"has work as gather\[0\], the flow now calls work with other arguments",
    ),
    "functions in another order": (
        lambda: gather(refunds, invoices),
        lambda: gather(invoices, refunds),
        r"has refunds as gather\[0\], the flow now calls invoices",
    ),
    "lambdas with defaults in another order": (
        lambda: gather(*[lambda k=k: work(k) for k in "ab"]),
        lambda: gather(*[lambda k=k: work(k) for k in "ba"]),
        r"gather\[0\]",
    ),
    "closures in another order": (
        lambda: gather(made("a"), made("b")),
        lambda: gather(made("b"), made("a")),
        r"gather\[0\]",
    ),
    "keys instead of places": (
        lambda: each(work, ["a", "b"]),
        lambda: each(work, ["a", "b"], key=str),
        r"branches of each by their places, the flow now has them by key=",
    ),
    "places instead of keys": (
        lambda: each(work, ["a", "b"], key=str),
        lambda: each(work, ["a", "b"]),
        r"branches of each by key=, the flow now has them by their places",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_branch_for_something_else_is_noticed(holdfast_store, change):
    before, after, told = CHANGES[change]
    changing = Changing(before)
    with pytest.raises(RunHeld, match=told):
        changing.run(after)
    assert sent == []


def test_items_can_be_appended_and_have_an_identity_from_then_on(store):
    changing = Changing(lambda: each(work, ["a", "b"]))
    changing.stop.passed = 0
    changing.body = lambda: each(work, ["a", "b", "c"])
    interrupted(lambda: changing.flow.run("r"))
    assert sent == ["c 0", "c 1"]
    changing.body = lambda: each(work, ["a", "b", "d", "c"])
    with pytest.raises(RunHeld, match=r"each\[2\] for another item, which is now item 3"):
        changing.flow.run("r")
    assert changing.run(lambda: each(work, ["a", "b", "c"])) == ["a", "b", "c"]
    assert sent == ["c 0", "c 1"]


def test_keys_let_items_be_inserted(store):
    changing = Changing(lambda: each(work, ["a", "b"], key=str))
    assert changing.run(lambda: each(work, ["new", "b", "a"], key=str)) == ["new", "b", "a"]
    assert sent == ["new 0", "new 1"]


def test_an_accepted_change_gives_each_item_its_own_records(store):
    changing = Changing(lambda: each(work, ["a", "b"]))
    with pytest.raises(RunHeld):
        changing.run(lambda: each(work, ["new", "a", "b"]))
    store.resume("r", accept_change=True, confirm=True, actor="ana")
    changing.stop.passed = 0
    interrupted(lambda: changing.flow.run("r"))
    assert changing.flow.run("r") == ["new", "a", "b"]
    assert sent == ["new 0", "new 1"]


def test_an_accepted_change_of_an_item_keeps_its_place(holdfast_store):
    changing = Changing(lambda: each(work, ["a", "b"]))
    with pytest.raises(RunHeld):
        changing.run(lambda: each(work, ["A", "b"]))
    holdfast_store.resume("r", accept_change=True, actor="ana")
    assert changing.flow.run("r") == ["A", "b"]
    assert sent == []


def test_a_function_may_be_renamed(holdfast_store):
    changing = Changing(lambda: (each(refunded, [1]), gather(refunds)))
    assert changing.run(lambda: (each(renamed, [1]), gather(repaid))) == (["refunds"], ("refunds",))
    assert sent == []


def repaid() -> str:
    return work("refunds")


def refunded(_: int) -> str:
    return work("refunds")


def renamed(_: int) -> str:
    return work("refunds")


def test_items_that_cannot_be_stored_work_as_before(store):
    changing = Changing(lambda: each(of_client, [Client("a"), Client("b")]))
    body = lambda: each(of_client, [Client("a"), Client("b"), Client("c")])  # noqa: E731
    assert changing.run(body) == ["a", "b", "c"]
    assert sent == ["c 0", "c 1"]


async def aio_work(kind: str) -> str:
    async for state in holdfast.aio.turns({"i": 0}, max_turns=9, name="work"):
        if state["i"] == 2:
            break
        await send.aio(kind, state["i"])
        state["i"] += 1
    return kind


def test_coroutines_in_another_order_are_noticed(holdfast_store):
    kinds = ["a", "b"]

    @flow(name="marks-awaited")
    async def awaited() -> Any:
        found = await holdfast.aio.gather(*(aio_work(kind) for kind in kinds))
        await holdfast.aio.wait_for_signal("go")
        return found

    awaited.submit("r")
    holdfast_store.recover()
    assert len(sent) == 4
    kinds.reverse()
    holdfast_store.signal("r", "go", 1)
    holdfast_store.recover()
    run = holdfast_store.get("r")
    assert (run.status, run.held_reason) == ("held", "diverged")
    assert "calls aio_work with other arguments" in (run.held_detail or "")
