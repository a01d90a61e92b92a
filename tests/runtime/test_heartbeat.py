"""The heartbeat: leases are renewed, long steps show that they have begun, a lost lease is heard."""

from __future__ import annotations

import threading

import pytest

from holdfast import effect, flow, step, testing
from holdfast.errors import LeaseLost
from tests.runtime.stops import kinds, steps


class Waiting:
    """A step of a run in the background, which waits until it is let go."""

    def __init__(self, run_id: str = "r", *, as_effect: bool = False) -> None:
        at_work, self.free = threading.Event(), threading.Event()

        @step
        def waits(x: int) -> int:
            at_work.set()
            assert self.free.wait(10)
            return x

        @effect
        def waits_too(x: int) -> int:
            return waits.fn(x)

        @flow
        def work() -> int:
            return waits_too(7) if as_effect else waits(7)

        self.flow = work
        self.step = waits_too if as_effect else waits
        self.handle = work.start(run_id)
        assert at_work.wait(10)

    def end(self) -> int:
        self.free.set()
        return self.handle.result(timeout=10)


def test_a_step_that_is_still_at_work_gets_its_start_written(store):
    waiting = Waiting()
    assert kinds(store, "r") == ["run_started", "run_claimed"]
    store.engine.heartbeat.beat()
    store.engine.committer.flush()
    store.until("r", status="running")
    assert kinds(store, "r")[2:] == ["step_started"]
    assert steps(store, "r") == {waiting.step.name: "running"}
    store.engine.heartbeat.beat()
    assert waiting.end() == 7
    assert kinds(store, "r")[2:] == ["step_started", "step_completed", "run_completed"]
    started = next(e for e in store.history("r") if e.kind == "step_started")
    assert started.body["args"] == {"x": 7}
    assert store.verify() == []


def test_an_effect_does_not_wait_for_the_heartbeat(store):
    waiting = Waiting(as_effect=True)
    assert kinds(store, "r")[2:] == ["step_started"]
    store.engine.heartbeat.beat()
    assert waiting.end() == 7
    assert kinds(store, "r")[2:] == ["step_started", "step_completed", "run_completed"]


def test_a_beat_renews_the_lease():
    clock = testing.FakeClock()
    with testing.store(clock, lease_s=30) as store:
        waiting = Waiting()
        before_us = store.kept.get("r").lease_until_us  # type: ignore[union-attr]
        clock.advance(20)
        store.engine.heartbeat.beat()
        store.engine.committer.flush()
        assert store.kept.get("r").lease_until_us == before_us + 20_000_000  # type: ignore[union-attr]
        waiting.end()


def test_a_run_that_was_taken_over_stops_and_says_so():
    clock = testing.FakeClock()
    with testing.store(clock, lease_s=30) as store:
        waiting = Waiting()
        clock.advance(31)
        taken = store.kept.claim("r", store.kept.register_owner(), store.kept.now_us())
        assert taken.row.epoch == 2
        store.engine.heartbeat.beat()
        store.engine.committer.flush()
        before = kinds(store, "r")
        waiting.free.set()
        with pytest.raises(LeaseLost):
            waiting.handle.result(timeout=10)
        assert kinds(store, "r") == before
        assert store.engine.executing() == []


def test_beats_while_hundreds_of_branches_begin_and_end(store):
    from holdfast import each

    @step
    def short(i: int) -> int:
        return i

    @flow
    def work() -> int:
        return len(each(short, range(300), at_once=16))

    over = threading.Event()
    wrong: list[BaseException] = []

    def beats() -> None:
        while not over.wait(0.001):
            for execution in store.engine.executing():
                try:
                    execution.beat()
                except BaseException as error:
                    wrong.append(error)

    beating = threading.Thread(target=beats)
    beating.start()
    try:
        assert work.run("r") == 300
    finally:
        over.set()
        beating.join()
    assert wrong == []
    assert store.verify() == []
