"""What a process writes of itself: equal to what it committed, about once a minute, harming no run."""

from __future__ import annotations

import asyncio
import datetime as dt
import os
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Retry, effect, flow, step, testing
from holdfast._engine.telemetry.measures import Counts, Measure
from holdfast._features.measures.model import MINUTE_US, merged
from holdfast._features.measures.runtime import IDLE_US, measuring as measuring_of
from holdfast.context import record_usage
from holdfast.errors import RunFailed, RunHeld, StoreFailed
from holdfast.observers import Observer
from holdfast.testing import StoreFaults
from tests.attempts import attempt
from tests.runtime.facts import until

ALWAYS = 1 << 60
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
gate = threading.Event()


@step(name="measured look", retry=Retry(attempts=3, initial_wait_s=0.0001))
def look(number: int) -> int:
    record_usage(model="m", input_tokens=10, output_tokens=5, cost_usd=0.5)
    if number % 2 and attempt() == 1:
        raise OSError("busy")
    return number


@step(name="measured fault")
def fault() -> None:
    raise ValueError("no")


@effect(name="measured payment")
def pay(number: int) -> str:
    if number == 13:
        raise TimeoutError("no answer")
    return f"paid {number}"


@step(name="measured thought")
async def think(text: str) -> str:
    await asyncio.sleep(0)
    return text


@step(name="measured wait")
def wait() -> None:
    gate.wait(60)


@flow(name="measured order")
def order(number: int) -> str:
    return pay(look(number))


@flow(name="measured failure")
def failing() -> None:
    fault()


@flow(name="measured agent")
async def agent(text: str) -> str:
    return await think(text)


@flow(name="measured patience")
def patient() -> None:
    wait()


@pytest.fixture(params=["memory:", "sqlite:"])
def clocked(request: pytest.FixtureRequest) -> Iterator[testing.PrivateStore]:
    with testing.store(testing.FakeClock(NOON), url=request.param) as opened:
        yield opened


def rows(store: Any) -> list[Measure]:
    found = store._backend.measures(0, ALWAYS)
    assert found.damaged == []
    return found.rows


def of_flow(store: Any, name: str) -> Counts:
    measuring_of(store._engine).flush()
    return merged(row for row in rows(store) if row.flow == name)


def test_what_is_counted_is_what_was_committed(store):
    for number in (1, 2, 3):
        order.run(f"o{number}", number)
    with pytest.raises(RunHeld):
        order.run("o13", 13)
    with pytest.raises(RunFailed):
        failing.run("f")
    asyncio.run(agent.run("a", "x"))
    found = of_flow(store, order.name)
    views = [store.get(run_id) for run_id in ("o1", "o2", "o3", "o13")]
    journal = Counter(
        entry.kind for view in views for entry in store.history(view.run_id) if entry.step
    )
    assert found.steps == journal["step_completed"] == sum(view.totals.steps for view in views)
    assert found.attempts == sum(view.totals.attempts for view in views) == 11
    assert found.errors == journal["step_failed"] + journal["step_in_doubt"] == 4
    assert (found.doubts, found.retries, found.held) == (1, 3, 1)
    assert found.ended == {"completed": 3}
    assert found.tokens == 15 * 7
    assert found.cost_nanos == 7 * 500_000_000
    assert sum(found.attempt_us.values()) == found.attempts
    assert sum(found.run_us.values()) == 3
    failed, awaited = of_flow(store, failing.name), of_flow(store, agent.name)
    assert (failed.errors, failed.ended) == (1, {"failed": 1})
    assert (awaited.steps, awaited.ended) == (1, {"completed": 1})


def test_a_replay_is_not_counted(store):
    order.run("o2", 2)
    before = of_flow(store, order.name)
    order.run("o2", 2)
    assert of_flow(store, order.name) == before


def test_runs_of_several_stores_are_counted_where_they_are(tmp_path):
    with (
        holdfast.open(f"sqlite:///{tmp_path}/one.db", default=False) as one,
        holdfast.open(f"sqlite:///{tmp_path}/two.db", default=False) as two,
    ):
        order.with_options(store=one).run("o2", 2)
        for run_id in ("o4", "o6"):
            order.with_options(store=two).run(run_id, int(run_id[1:]))
        assert of_flow(one, order.name).ended == {"completed": 1}
        assert of_flow(two, order.name).ended == {"completed": 2}


def test_minutes_that_are_over_are_written_and_this_one_is_not(clocked):
    order.run("o2", 2)
    measuring_of(clocked._engine).beat()
    assert rows(clocked) == []
    clocked.clock.advance(60)
    order.run("o4", 4)
    measuring_of(clocked._engine).beat()
    [row] = rows(clocked)
    assert (row.at_us, row.flow, row.counts.steps) == (int(NOON.timestamp()) * 10**6, order.name, 2)
    clocked.clock.advance(60)
    measuring_of(clocked._engine).beat()
    assert [row.counts.steps for row in rows(clocked)] == [2, 2]
    assert {row.process for row in rows(clocked)} == {row.process}
    assert row.process.split(":")[1] == str(os.getpid())


def test_a_process_that_does_nothing_writes_nothing(clocked):
    order.run("o2", 2)
    clocked.clock.advance(60)
    measuring_of(clocked._engine).beat()
    before = rows(clocked)
    for _ in range(5):
        clocked.clock.advance(3600)
        measuring_of(clocked._engine).beat()
    measuring_of(clocked._engine).flush()
    assert rows(clocked) == before


def test_what_is_left_is_written_at_the_end(tmp_path):
    url = f"sqlite:///{tmp_path}/runs.db"
    with holdfast.open(url):
        order.run("o2", 2)
    with holdfast.open(url, default=False) as store:
        assert merged(rows(store)).ended == {"completed": 1}
        assert store.verify() == []


def test_what_was_written_early_is_completed_later(clocked):
    for number in (2, 4):
        order.run(f"o{number}", number)
        measuring_of(clocked._engine).flush()
    clocked.clock.advance(60)
    measuring_of(clocked._engine).beat()
    [row] = rows(clocked)
    assert row.counts.ended == {"completed": 2}


def test_a_store_that_takes_no_measures_harms_no_run(caplog):
    faults = StoreFaults()
    faults.fail("put_measures", error=StoreFailed("no"), forever=True)
    with testing.store(testing.FakeClock(NOON), faults=faults) as store:
        for number in (2, 4, 6):
            assert order.run(f"o{number}", number) == f"paid {number}"
            store.clock.advance(60)
            measuring_of(store._engine).beat()
        assert rows(store) == []
    told = [it for it in caplog.records if "measures could not be written" in it.getMessage()]
    assert len(told) == 1
    # A store that was not there just now is not waited for at the end.
    assert faults.count("put_measures") == 3


def test_what_could_not_be_written_is_written_later():
    faults = StoreFaults()
    faults.fail("put_measures", error=StoreFailed("no"))
    with testing.store(testing.FakeClock(NOON), faults=faults) as store:
        for number in (2, 4):
            order.run(f"o{number}", number)
            store.clock.advance(60)
            measuring_of(store._engine).beat()
        assert [row.counts.ended for row in rows(store)] == [{"completed": 1}] * 2


def test_a_write_that_cannot_be_counted_is_committed_all_the_same(sqlite, monkeypatch, caplog):
    def broken(*_: Any) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr("holdfast._features.measures.tally.Tally.wrote", broken)
    assert order.run("o2", 2) == "paid 2"
    told = [it for it in caplog.records if "could not be counted" in it.getMessage()]
    assert len(told) == 1


class Spans(Observer):
    """Makes a span of every other attempt."""

    def __init__(self) -> None:
        self.seen = 0

    def attempt_started(self, attempt):
        self.seen += 1
        attempt.traced = self.seen % 2 == 0


def test_attempts_with_a_span_are_counted(store):
    end = holdfast.observers.observe(Spans())
    try:
        for number in (2, 4, 6):
            order.run(f"o{number}", number)
    finally:
        end()
    order.run("o8", 8)
    found = of_flow(store, order.name)
    assert (found.traced, found.attempts) == (3, 8)


# -- places ------------------------------------------------------------------------------------


def test_how_busy_the_places_of_a_worker_were(store):
    gate.clear()
    with store.worker(flows=[patient], concurrency=4) as worker:
        for number in range(6):
            patient.submit(f"p{number}")
        until(lambda: worker.working == 4)
        measuring_of(store._engine).sample()
        threading.Event().wait(0.1)
        gate.set()
    measuring_of(store._engine).flush()
    [places] = [row.counts for row in rows(store) if not row.flow]
    assert places.span_us > 100_000
    assert 3.9 < places.places_us / places.span_us < 4.1
    assert 4 * 100_000 <= places.busy_us <= places.places_us
    assert (places.ready, places.samples) == (2, 1)


def test_a_worker_that_waits_says_so_four_times_an_hour(clocked):
    measuring = measuring_of(clocked._engine)
    minute_us = int(NOON.timestamp()) * 10**6

    class Places:
        """Four places that nobody uses, or one of them all the time."""

        size = 4
        seconds = 0.0

        def busy_s(self) -> float:
            return self.seconds

    places: Any = Places()
    measuring.works_in(places)
    told: list[int] = []
    for minute in range(40):
        # What the machine's own clock would have said.
        measuring._looked = (measuring._looked[0] - 60, places.seconds)
        if minute == 35:
            places.seconds += 60
        clocked.clock.advance(60)
        measuring.beat()
        told.append(len(rows(clocked)))
    assert told[:14] == [0] * 14
    assert told[34] == 2
    # The minute in which something was done is told as soon as it is over, and what was before.
    assert told[37] == 4
    spans = [row.counts.span_us // 1_000_000 for row in rows(clocked)]
    assert [span // 60 for span in spans] == [15, 15, 5, 1]
    assert [row.counts.busy_us // 1_000_000 for row in rows(clocked)] == [0, 0, 0, 60]
    assert spans[0] * 10**6 >= IDLE_US
    assert rows(clocked)[0].at_us - minute_us <= MINUTE_US
