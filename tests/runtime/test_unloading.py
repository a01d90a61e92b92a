"""When a run that waits is unloaded, and that nothing is lost or left behind by it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Retry, aio, ask, effect, flow, gather, sleep, step, wait_for_signal
from holdfast._runtime.execution.execution import Execution
from holdfast.errors import Corrupt, WaitTimedOut
from holdfast.testing import store as private_store
from holdfast.testing.stores import PrivateStore

seen: list[str] = []


@pytest.fixture
def store() -> Iterator[PrivateStore]:
    seen.clear()
    with private_store(url="sqlite:") as opened:
        yield opened


@step(name="ul-note")
def note(what: str) -> str:
    seen.append(what)
    return what


@step(name="ul-anote")
async def anote(what: str) -> str:
    seen.append(what)
    return what


# -- all lines ---------------------------------------------------------------------------------


@flow(name="ul-nested")
def nested(name: str) -> Any:
    def works() -> str:
        gather(lambda: note("one"), lambda: note("two"))
        return note(f"last {name}")

    return gather(lambda: wait_for_signal("x"), works)


@flow(name="ul-anested")
async def anested(name: str) -> Any:
    async def works() -> str:
        await aio.gather(anote("one"), anote("two"))
        return await anote(f"last {name}")

    return await aio.gather(aio.wait_for_signal("x"), works())


@flow(name="ul-limited")
async def limited(name: str) -> Any:
    async def one(number: int) -> Any:
        if number == 0:
            return await aio.wait_for_signal("x")
        return await anote(f"{number} {name}")

    return await aio.each(one, range(5), max_concurrency=2)


@pytest.mark.parametrize("it", [nested, anested])
def test_a_branch_that_has_more_to_do_is_not_unloaded_with_the_others(
    store: PrivateStore, it: Any
) -> None:
    with store.worker(flows=[it], concurrency=10):
        for number in range(10):
            it.submit(f"r{number}", f"r{number}")
        for number in range(10):
            store.wait_until(
                f"r{number}", done="gather[1]/" + ("ul-note" if it is nested else "ul-anote")
            )
            store.signal(f"r{number}", "x", number)
        for number in range(10):
            handle = store.wait_until(f"r{number}", status="completed")
            assert handle.result(timeout=10) == (number, f"last r{number}")


def test_with_a_limit_the_next_branch_has_the_place_of_the_one_before(store: PrivateStore) -> None:
    with store.worker(flows=[limited]):
        handle = limited.submit("r", "r")
        store.wait_until("r", done="each[4]/ul-anote")
        store.wait_until("r", waiting="signal:x")
        store.signal("r", "x", 7)
        assert handle.result(timeout=10) == [7, "1 r", "2 r", "3 r", "4 r"]


# -- messages ----------------------------------------------------------------------------------


@flow(name="ul-waits")
def waits() -> Any:
    return wait_for_signal("x")


@flow(name="ul-waits-again")
def waits_again() -> Any:
    try:
        return wait_for_signal("x", timeout=0.3)
    except WaitTimedOut:
        return wait_for_signal("x")


def test_a_message_that_comes_while_the_run_decides_to_unload_wakes_it(
    store: PrivateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle = Execution.idle
    sent: list[Any] = []

    def slow(self: Execution) -> Any:
        found = idle(self)
        if found and not sent:
            sent.append(store.signal(self.run_id, "x", 1))
            self.inbox.refresh()  # As the thread that looks after inboxes may do just now.
        return found

    monkeypatch.setattr(Execution, "idle", slow)
    with store.worker(flows=[waits]):
        assert waits.submit("r").result(timeout=10) == 1


def test_an_older_look_does_not_hide_what_a_newer_one_found(
    store: PrivateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = type(store._backend)
    inbox = kept.inbox
    stale: list[Any] = []

    def slow(self: Any, run_no: int, after: int = 0) -> Any:
        found = inbox(self, run_no, after)
        if not stale and threading.current_thread().name.startswith("holdfast-run"):
            stale.append(found)
            store.signal("r", "x", 1)
            other = threading.Thread(target=store._engine.inbox_poller.look)
            other.start()  # It waits for this look to be through.
            other.join(0.2)
        return found

    monkeypatch.setattr(kept, "inbox", slow)
    with store.worker(flows=[waits_again]):
        assert waits_again.submit("r").result(timeout=10) == 1


def test_a_damaged_message_concerns_its_run_alone(
    store: PrivateStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    handles = [waits.start(f"r{number}") for number in range(3)]
    for number in range(3):
        store.wait_until(f"r{number}", waiting="signal:x")
    damaged, kept = store._backend.get("r0"), type(store._backend)
    assert damaged is not None
    inbox = kept.inbox

    def broken(self: Any, run_no: int, after: int = 0) -> Any:
        if run_no == damaged.run_no:
            raise Corrupt("a message", run_id="r0", why="made so by this test")
        return inbox(self, run_no, after)

    monkeypatch.setattr(kept, "inbox", broken)
    for number in range(3):
        store.signal(f"r{number}", "x", number)
    assert [handle.result(timeout=10) for handle in handles[1:]] == [1, 2]
    with pytest.raises(Corrupt):
        handles[0].result(timeout=10)
    store.recover()
    assert store.get("r0").held_reason == "corrupt"


# -- places of a worker ------------------------------------------------------------------------


class Down(Exception):
    """The other side cannot be reached."""


attempts: list[int] = []


@effect(
    name="ul-pay",
    key="ul:{number}",
    retry=Retry(attempts=3, initial_wait_s=1.5, jitter=0),
    not_done_on=(Down,),
)
def pay(number: int) -> int:
    attempts.append(number)
    if len(attempts) == 1:
        raise Down
    return number


@flow(name="ul-pays")
def pays(number: int) -> int:
    return pay(number)


def test_a_run_that_waits_for_a_key_leaves_its_place_to_the_run_that_has_it(
    store: PrivateStore,
) -> None:
    attempts.clear()
    with store.worker(flows=[pays], concurrency=1):
        first = pays.submit("a", 7)
        store.wait_until("a", waiting="timer")
        second = pays.submit("b", 7)
        assert (first.result(timeout=30), second.result(timeout=30)) == (7, 7)
    assert attempts == [7, 7]


@flow(name="ul-child")
async def child(number: int) -> int:
    return number


@flow(name="ul-plain-gather")
async def plain_gather() -> list[int]:
    return list(await asyncio.gather(child(1), child(2)))


def test_children_that_a_plain_gather_awaits_do_not_wait_for_the_place_of_their_parent(
    store: PrivateStore,
) -> None:
    with store.worker(flows=[plain_gather, child], concurrency=1):
        assert plain_gather.submit("p").result(timeout=20) == [1, 2]


# -- what is replayed --------------------------------------------------------------------------


@flow(name="ul-default")
def with_default() -> list[Any]:
    answers = [
        ask("?", name="n", type=int, timeout=0.05, default=3),
        ask("?", name="m", type=int, timeout=0.05, default=None),
    ]
    sleep(1.2)
    return answers


def test_a_default_is_the_same_after_an_unload(store: PrivateStore) -> None:
    with store.worker(flows=[with_default]):
        assert with_default.submit("r").result(timeout=20) == [3, None]


@flow(name="ul-same-name")
def same_name() -> int:
    def first() -> None:
        ask("?", name="q", type=int, timeout=0.02, default=1)
        wait_for_signal("w0")

    def second() -> None:
        wait_for_signal("w1")
        ask("?", name="q", type=int, timeout=0.02, default=1)
        wait_for_signal("w2")

    gather(first, second)
    return 1


def test_branches_that_asked_by_one_name_one_after_the_other_are_replayed_together(
    store: PrivateStore,
) -> None:
    with store.worker(flows=[same_name]):
        handle = same_name.submit("r")
        store.wait_until("r", done="gather[0]/ask:q")
        store.signal("r", "w1", None)
        store.wait_until("r", done="gather[1]/ask:q")
        store.signal("r", "w0", None)
        store.signal("r", "w2", None)
        assert handle.result(timeout=20) == 1


@effect(name="ul-approved", needs_approval=True)
def approved(number: int) -> int:
    return number


@flow(name="ul-approves")
def approves() -> int:
    wait_for_signal("go")
    return approved(1)


def test_an_answer_that_is_no_approval_is_refused_and_the_question_asked_again(
    store: PrivateStore,
) -> None:
    handle = approves.start("r")
    store.wait_until("r", waiting="signal")
    try:
        store.answer("r", "approve:ul-approved", True, actor="eve")
    except holdfast.errors.HoldfastError:
        return  # Not even taken: as good.
    finally:
        store.signal("r", "go", None)
        store.wait_until("r", waiting="answer")
        store.approve("r", "ul-approved", actor="ana")
        assert handle.result(timeout=10) == 1
