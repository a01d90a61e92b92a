"""A moment in which no thread can be started: a run that was taken is given back at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

import holdfast
from holdfast import effect, flow, step, wait_for_signal
from holdfast._runtime import clocks
from holdfast._runtime.commit.heartbeat import Heartbeat
from holdfast._runtime.inbox_poller import InboxPoller
from holdfast.errors import RunError, RunHeld
from tests.runtime.stops import kinds

TIMES = 10
"""More claims than a run may have without any progress, if they were counted."""


@pytest.fixture
def no_thread(monkeypatch) -> Callable[[str], Any]:
    """Let no thread start whose name begins so, until it is called with another one."""
    start = threading.Thread.start
    refused = ["nothing"]

    def start_or_not(self: threading.Thread) -> None:
        if self.name.startswith(refused[0]):
            raise RuntimeError("can't start new thread")
        start(self)

    def names(beginning: str) -> None:
        refused[0] = beginning

    monkeypatch.setattr(threading.Thread, "start", start_or_not)
    return names


@step
def thread_one() -> int:
    return 1


@step(timeout=60)
def thread_limited() -> int:
    return 1


@flow
def thread_flow() -> int:
    return thread_one()


@flow
async def thread_async_flow() -> int:
    return await thread_one.aio()


@flow
def thread_limited_flow() -> int:
    return thread_limited()


@flow
def thread_parent() -> int:
    return thread_flow() + 1


def refused(call: Callable[[], Any]) -> str:
    with pytest.raises(RunError, match="can't start new thread") as found:
        call()
    assert type(found.value) is RunError, "nobody has it, and it is not held"
    return str(found.value)


@pytest.mark.parametrize("name", ["holdfast-heartbeat", "holdfast-inbox"])
def test_a_run_is_given_back_if_a_thread_of_the_store_cannot_start(store, no_thread, name):
    no_thread(name)
    for _ in range(TIMES):
        told = refused(lambda: thread_flow.run("r"))
        assert "run 'r' is not executed" in told
        assert "was released" in told
    no_thread("nothing")
    assert thread_flow.run("r") == 1
    assert kinds(store, "r").count("run_released") == TIMES


@pytest.mark.parametrize("work", [thread_flow, thread_async_flow], ids=["sync", "async"])
def test_a_run_is_given_back_if_its_own_thread_cannot_start(store, no_thread, work):
    no_thread("holdfast-run-")
    for _ in range(TIMES):
        assert "run 'r' is not executed" in refused(lambda: work.start("r"))
    no_thread("nothing")
    assert work.start("r").result() == 1


def test_a_parent_is_given_back_if_its_child_cannot_have_a_thread(store, no_thread):
    no_thread("holdfast-run-")
    assert "run 'r' was released" in refused(lambda: thread_parent.run("r"))
    no_thread("nothing")
    assert thread_parent.run("r") == 2


@pytest.mark.parametrize("first", [0, 1, 2])
def test_a_run_is_given_back_if_not_all_of_its_branches_can_have_threads(store, no_thread, first):
    """Those that were started have ended by then, and nothing of them is done twice."""
    done: list[int] = []
    at_work: set[int] = set()

    @step(name="thread branch")
    def once(number: int) -> int:
        done.append(number)
        return number

    def branch(number: int) -> int:
        at_work.add(number)
        try:
            return once(number) + once(number + 10)
        finally:
            at_work.discard(number)

    @flow(name="thread branches")
    def branches() -> list[int]:
        return holdfast.each(branch, range(3))

    no_thread(f"holdfast-r-{first}")
    assert "run 'r' was released" in refused(lambda: branches.run("r"))
    assert (at_work, store.get("r").status) == (set(), "queued")
    assert first or not done
    no_thread("nothing")
    assert branches.run("r") == [10, 12, 14]
    assert sorted(done) == [0, 1, 2, 10, 11, 12]
    assert "run_failed" not in kinds(store, "r")


def test_a_run_is_given_back_if_a_time_out_cannot_have_a_thread(store, no_thread):
    no_thread("holdfast-thread_limited")
    assert "at step 'thread_limited'" in refused(lambda: thread_limited_flow.run("r"))
    no_thread("nothing")
    assert thread_limited_flow.run("r") == 1


def test_an_effect_whose_time_out_cannot_have_a_thread_is_in_doubt(store, no_thread):
    @effect(timeout=60)
    def thread_pays() -> int:
        return 1

    @flow
    def thread_paying() -> int:
        return thread_pays()

    no_thread(f"holdfast-{thread_pays.name}")
    refused(lambda: thread_paying.run("r"))
    no_thread("nothing")
    with pytest.raises(RunHeld) as held:
        thread_paying.run("r")
    assert held.value.reason == "in_doubt"


def test_a_store_without_threads_can_be_closed_and_opened_anew(tmp_path, no_thread):
    url = f"sqlite:///{tmp_path}/s.db"
    with holdfast.open(url, default=False) as store:
        no_thread("")
        refused(lambda: thread_flow.with_options(store=store).run("r"))
    no_thread("nothing")
    with holdfast.open(url, default=False) as store:
        assert thread_flow.with_options(store=store).run("r") == 1


# -- a thread that is made and does not begin, for want of memory ----------------------------------


@pytest.fixture
def stillborn(monkeypatch) -> Callable[[str], Any]:
    """Let each thread whose name begins so be made, and end before it has begun."""
    bootstrap = clocks.Thread._bootstrap  # type: ignore[attr-defined]
    names = ["nothing"]

    def begins_or_not(self: threading.Thread) -> None:
        if not self.name.startswith(names[0]):
            bootstrap(self)

    def named(beginning: str) -> None:
        monkeypatch.setattr(clocks, "START_S", 60.0 if beginning == "nothing" else 0.05)
        names[0] = beginning

    monkeypatch.setattr(threading.Thread, "_bootstrap", begins_or_not)
    return named


@pytest.mark.parametrize("name", ["holdfast-heartbeat", "holdfast-inbox"])
def test_a_thread_that_does_not_begin_is_not_waited_for(store, stillborn, name):
    stillborn(name)
    assert "was released" in refused(lambda: thread_flow.run("r"))
    stillborn("nothing")
    assert thread_flow.run("r") == 1


def test_a_thread_that_begins_too_late_does_nothing(monkeypatch):
    bootstrap = clocks.Thread._bootstrap  # type: ignore[attr-defined]
    let_go = threading.Event()

    def later(self: threading.Thread) -> None:
        let_go.wait()
        bootstrap(self)

    monkeypatch.setattr(threading.Thread, "_bootstrap", later)
    monkeypatch.setattr(clocks, "START_S", 0.01)
    done: list[int] = []
    thread = clocks.Thread(lambda: done.append(1), "late")
    with pytest.raises(RuntimeError, match="can't start new thread"):
        thread.start()
    let_go.set()
    assert threading.Event.wait(thread._started, 60)
    thread.join()
    assert not done


# -- a moment without memory -----------------------------------------------------------------------


@flow
def memory_waits() -> str:
    return wait_for_signal("go")


def test_the_inbox_is_looked_at_again_after_a_moment_without_memory(store, monkeypatch):
    over = InboxPoller._is_over
    left = [2]

    def over_or_no_memory(self: InboxPoller) -> bool:
        if left[0]:
            left[0] -= 1
            raise MemoryError
        return over(self)

    monkeypatch.setattr(InboxPoller, "_is_over", over_or_no_memory)
    handle = memory_waits.start("r")
    while left[0]:
        threading.Event().wait(0.01)
    store.signal("r", "go", "on")
    assert handle.result(timeout=60) == "on"


def test_the_heart_beats_again_after_a_moment_without_memory(store, monkeypatch):
    beat = Heartbeat.beat
    beats: list[str] = []
    both = threading.Event()

    def beats_or_not(self: Heartbeat) -> None:
        beats.append("beat")
        if len(beats) == 1:
            raise MemoryError
        beat(self)
        both.set()

    monkeypatch.setattr(Heartbeat, "beat", beats_or_not)
    monkeypatch.setattr(store._engine.heartbeat, "_every_s", 0.01)
    handle = memory_waits.start("r")
    assert both.wait(60)
    store.signal("r", "go", "on")
    assert handle.result(timeout=60) == "on"
