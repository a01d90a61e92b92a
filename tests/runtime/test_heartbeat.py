"""The heartbeat: leases are renewed, long steps show that they have begun, a lost lease is heard."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import msgspec
import pytest

from holdfast import effect, flow, step, testing
from holdfast._engine.journal.rows import Lease, RunRow
from holdfast._runtime.execution.execution import Execution
from holdfast._stores.contract import Busy
from holdfast.errors import LeaseLost, StoreFailed, StoreFull
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


def wait_for(fact: Callable[[], object]) -> None:
    """Wait until something is the case; the time limit of the test is the end of patience."""
    while not fact():
        threading.Event().wait(0.01)


def row_of(store: testing.PrivateStore) -> RunRow:
    row = store._backend.get("r")
    assert row is not None
    return row


def test_a_step_that_is_still_at_work_gets_its_start_written(store):
    waiting = Waiting()
    assert kinds(store, "r") == ["run_started", "run_claimed"]
    store._engine.heartbeat.beat()
    store._engine.committer.flush()
    store.wait_until("r", status="running")
    assert kinds(store, "r")[2:] == ["step_started"]
    assert steps(store, "r") == {waiting.step.name: "running"}
    store._engine.heartbeat.beat()
    assert waiting.end() == 7
    assert kinds(store, "r")[2:] == ["step_started", "step_completed", "run_completed"]
    started = next(e for e in store.history("r") if e.kind == "step_started")
    assert started.body["args"] == {"x": 7}
    assert store.verify() == []


def test_an_effect_does_not_wait_for_the_heartbeat(store):
    waiting = Waiting(as_effect=True)
    assert kinds(store, "r")[2:] == ["step_started"]
    store._engine.heartbeat.beat()
    assert waiting.end() == 7
    assert kinds(store, "r")[2:] == ["step_started", "step_completed", "run_completed"]


def test_a_beat_keeps_the_lease_with_one_write_for_all_runs():
    clock, faults = testing.FakeClock(), testing.StoreFaults()
    with testing.store(clock, lease_s=30, faults=faults) as store:
        first, second = Waiting("a"), Waiting("b")
        store._engine.heartbeat.beat()
        store._engine.committer.flush()
        clock.advance(20)
        before = [faults.count(write) for write in ("append", "pulse")]
        rows = [store._backend.get(run_id) for run_id in "ab"]
        store._engine.heartbeat.beat()
        store._engine.committer.flush()
        assert [faults.count(write) for write in ("append", "pulse")] == [before[0], before[1] + 1]
        assert [store._backend.get(run_id) for run_id in "ab"] == rows
        clock.advance(20)
        other = store._backend.register_owner()
        assert isinstance(store._backend.claim("a", other, store._backend.now_us()), Busy)
        assert store._backend.claimable(store._backend.now_us(), 10) == []
        clock.advance(11)
        assert len(store._backend.claimable(store._backend.now_us(), 10)) == 2
        first.end()
        second.end()


def test_the_pulse_says_which_process_it_is(store):
    waiting = Waiting()
    store._engine.heartbeat.beat()
    (pulse,) = store._backend.pulses()
    assert pulse.owner == store._engine.owner()
    assert f'"pid":{os.getpid()}' in pulse.facts
    waiting.end()


def test_a_process_that_has_nothing_does_not_beat():
    faults = testing.StoreFaults()
    with testing.store(faults=faults) as store:
        store._engine.heartbeat.beat()
        Waiting().end()
        store._engine.committer.flush()
        wait_for(lambda: not store._engine.executing())
        store._engine.heartbeat.beat()
        assert faults.count("pulse") == 0


def test_a_run_that_was_taken_over_stops_and_says_so():
    clock = testing.FakeClock()
    with testing.store(clock, lease_s=30) as store:
        waiting = Waiting()
        clock.advance(31)
        taken = store._backend.claim("r", store._backend.register_owner(), store._backend.now_us())
        assert taken.row.epoch == 2
        (execution,) = store._engine.executing()
        assert isinstance(execution, Execution)
        store._engine.heartbeat.beat()
        assert execution.fenced
        before = kinds(store, "r")
        waiting.free.set()
        with pytest.raises(LeaseLost):
            waiting.handle.result(timeout=10)
        assert kinds(store, "r") == before
        assert store._engine.executing() == []


def test_a_pulse_that_fails_is_told_and_tried_again(caplog):
    faults = testing.StoreFaults()
    faults.fail("pulse", at=1, error=StoreFull("no space"))
    with testing.store(faults=faults) as store:
        waiting = Waiting()
        store._engine.heartbeat.beat()
        assert "the pulse of this process failed" in caplog.text
        store._engine.heartbeat.beat()
        assert len(store._backend.pulses()) == 1
        waiting.end()


# -- runs that could not be given back -------------------------------------------------------------


def test_a_run_whose_last_write_failed_is_given_back_by_the_heartbeat(caplog):
    """Its process lives and pulses, so nobody else could ever take it."""
    faults = testing.StoreFaults()
    with testing.store(faults=faults) as store:
        waiting = Waiting()
        for number in (1, 2, 3):  # The outcome of the step, the release, and the first beat.
            faults.fail("append", at=number, error=StoreFull("no space"))
        waiting.free.set()
        wait_for(lambda: not store._engine.executing())
        assert [lease.row.run_id for lease in store._engine.abandoned()] == ["r"]
        store._engine.heartbeat.beat()
        assert "run r could not be released yet" in caplog.text
        assert row_of(store).owner == store._engine.owner()
        store._engine.heartbeat.beat()
        assert store._engine.abandoned() == []
        row = row_of(store)
        assert (row.status, row.owner) == ("queued", None)
        assert kinds(store, "r")[-1] == "run_released"
        assert waiting.flow.run("r") == 7
        assert store.verify() == []


def test_an_abandoned_run_that_went_on_elsewhere_is_forgotten(store):
    waiting = Waiting()
    (execution,) = store._engine.executing()
    stale = Lease(msgspec.structs.replace(execution.lease.row))
    waiting.end()
    store._engine.abandon(stale)
    store._engine.heartbeat.beat()
    assert store._engine.abandoned() == []
    assert kinds(store, "r")[-1] == "run_completed"


def test_a_claimed_run_that_cannot_be_loaded_is_given_back():
    """And its claims go on being counted: a run that nobody can load is quarantined at last."""
    faults = testing.StoreFaults()
    with testing.store(faults=faults) as store:

        @flow
        def work() -> int:
            return 1

        work.submit("r")
        faults.fail("load", at=1, error=StoreFailed("gone"))
        with pytest.raises(StoreFailed):
            work.run("r")
        assert len(store._engine.abandoned()) == 1
        store._engine.heartbeat.beat()
        row = row_of(store)
        assert (row.status, row.owner, row.claims) == ("queued", None, 1)
        assert work.run("r") == 1


def test_beats_while_hundreds_of_branches_begin_and_end(store):
    from holdfast import each

    @step
    def short(i: int) -> int:
        return i

    @flow
    def work() -> int:
        return len(each(short, range(300), max_concurrency=16))

    over = threading.Event()
    wrong: list[BaseException] = []

    def beats() -> None:
        while not over.wait(0.001):
            for execution in store._engine.executing():
                try:
                    execution.recorder.beat()
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
