"""A worker executes a run alone that its processes may have died of."""

from __future__ import annotations

import json
import shlex
import threading
from collections.abc import Iterator

import pytest

from holdfast import flow, step, testing
from holdfast._engine.journal.rows import Lease
from holdfast._runtime.worker import suspects
from holdfast._runtime.worker.suspects import Hunger
from holdfast._runtime.worker.worker import Worker
from tests.runtime.facts import until

PATIENCE_S = 20.0


class Stage:
    """Which bodies are at work, and when each may end."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self.ends: dict[str, threading.Event] = {}
        self.lock = threading.Lock()

    def end(self, *names: str) -> None:
        for name in names:
            self._event(name).set()

    def play(self, name: str) -> None:
        self.arrived.append(name)
        assert self._event(name).wait(PATIENCE_S)

    def until(self, *names: str) -> None:
        until(lambda: set(names) <= set(self.arrived))

    def _event(self, name: str) -> threading.Event:
        with self.lock:
            return self.ends.setdefault(name, threading.Event())


stage = Stage()


@pytest.fixture(autouse=True)
def _fresh(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    global stage
    caplog.set_level("INFO", "holdfast")
    stage = Stage()
    yield
    stage.end(*stage.arrived)


@step(name="suspects test plays")
def plays(name: str) -> str:
    stage.play(name)
    return name


@flow(name="suspects test played")
def played(name: str, steps: int = 1) -> str:
    for number in range(steps):
        plays(f"{name}{number}")
    return name


def submit(store: testing.PrivateStore, run_id: str, *, claims: int = 0, steps: int = 1) -> None:
    """Leave a run to the worker, after so many claims that brought nothing."""
    played.submit(run_id, run_id, steps)
    for _ in range(claims):
        got = store._backend.claim(run_id, store._engine.owner(), store._engine.now_us())
        assert isinstance(got, Lease)


def test_a_worker_with_nothing_to_do_takes_a_suspect_at_once_and_nothing_beside_it(
    store: testing.PrivateStore, caplog: pytest.LogCaptureFixture
):
    submit(store, "bad", claims=2, steps=2)
    with store.worker(flows=[played], concurrency=4) as worker:
        stage.until("bad0")
        submit(store, "other")
        looked(store)
        assert worker.working == 1
        assert store.get("other").status == "queued"
        stage.end("bad0")  # It brought something new: it is a run like others.
        stage.until("bad1", "other0")
        assert worker.working == 2
        stage.end("bad1", "other0")
        until(lambda: worker.working == 0)
    assert {store.get(name).status for name in ("bad", "other")} == {"completed"}
    told = [r.message for r in caplog.records if "executed alone" in r.message]
    assert len(told) == 1
    assert told[0].startswith(
        "run bad of suspects test played is executed alone: 2 times in a row its process ended"
    )


def test_a_suspect_that_lives_for_long_has_the_worker_no_more_to_itself(
    store: testing.PrivateStore, monkeypatch: pytest.MonkeyPatch
):
    submit(store, "bad", claims=2)
    with store.worker(flows=[played], concurrency=4) as worker:
        stage.until("bad0")
        [seen] = until(lambda: [it for it in store.workers() if it.alone is not None])
        assert seen.alone is not None
        assert seen.alone.run_id == "bad"
        submit(store, "other")
        said = store.explain("other")
        told = "executes only run bad now, because 2 times in a row its process ended"
        assert any(told in fact for fact in said.known)
        assert "holdfast explain bad" in [it.command for it in said.actions]
        looked(store)
        assert stage.arrived == ["bad0"]
        monkeypatch.setattr(suspects, "ALONE_S", 0.05)
        stage.until("other0")
        assert worker.working == 2
        assert json.loads(worker.facts())["alone"] is None
        stage.end("bad0", "other0")


def test_a_run_that_was_claimed_once_is_executed_beside_others(store: testing.PrivateStore):
    submit(store, "a", claims=1)
    submit(store, "b", claims=1)
    with store.worker(flows=[played]):
        stage.until("a0", "b0")
        stage.end("a0", "b0")


def test_suspects_are_executed_one_after_the_other(store: testing.PrivateStore):
    submit(store, "a", claims=2)
    submit(store, "b", claims=3)
    with store.worker(flows=[played]) as worker:
        until(lambda: stage.arrived)
        looked(store)
        (first,) = stage.arrived
        stage.end(first)
        stage.until("a0", "b0")
        assert worker.working == 1
        stage.end("a0", "b0")
        until(lambda: worker.working == 0)


def test_a_worker_at_work_makes_room_for_a_suspect(
    store: testing.PrivateStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(suspects, "HUNGRY_AFTER_S", 0.0)
    submit(store, "bad", claims=2)
    submit(store, "long")
    with store.worker(flows=[played]) as worker:
        stage.until("long0")
        until(lambda: worker._hunger.is_emptying)
        submit(store, "other")
        looked(store)
        assert stage.arrived == ["long0"]
        stage.end("long0")
        stage.until("bad0")
        assert worker.working == 1
        stage.end("bad0", "other0")
        until(lambda: store.get("other").status == "completed")


def test_a_worker_that_is_not_empty_in_time_goes_on(
    store: testing.PrivateStore, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(suspects, "HUNGRY_AFTER_S", 0.0)
    monkeypatch.setattr(suspects, "EMPTYING_S", 0.2)
    submit(store, "bad", claims=2)
    submit(store, "long")
    with store.worker(flows=[played]):
        stage.until("long0")
        submit(store, "other")
        stage.until("other0")
        stage.end("other0")
        assert "bad0" not in stage.arrived
        until(lambda: store.get("other").status == "completed")
        stage.end("long0")
        stage.until("bad0")
        stage.end("bad0")


def test_a_quarantine_is_told(store: testing.PrivateStore, caplog: pytest.LogCaptureFixture):
    submit(store, "bad", claims=4)
    submit(store, "worse", claims=4)
    with store.worker(flows=[played]):
        until(lambda: store.get("bad").status == store.get("worse").status == "held")
    told = sorted(r.message for r in caplog.records if "is quarantined" in r.message)
    assert [text.split()[1] for text in told] == ["bad", "worse"]
    see = f"holdfast explain bad --url {shlex.quote(store.url)}"
    if store.url.startswith("memory:"):
        see = "store.explain('bad')"
    assert told[0].endswith(f"see: {see}")
    assert stage.arrived == []


def test_hunger(monkeypatch: pytest.MonkeyPatch):
    now_s = 1000.0
    monkeypatch.setattr("holdfast._runtime.worker.suspects.time.monotonic", lambda: now_s)
    monkeypatch.setattr(suspects, "HERD", 1.0)
    hunger = Hunger()
    hunger.looked(passed_over=True, saw_all=True)
    assert hunger.sees_one
    assert not hunger.is_emptying
    now_s += 4.0
    hunger.looked(passed_over=False, saw_all=False)  # It says nothing about the rest.
    now_s += 1.0
    assert not hunger.is_emptying
    hunger.looked(passed_over=True, saw_all=False)
    assert hunger.is_emptying
    now_s += suspects.EMPTYING_S
    assert not hunger.is_emptying
    hunger.looked(passed_over=True, saw_all=True)
    assert not hunger.is_emptying
    now_s += suspects.SATED_S
    hunger.looked(passed_over=True, saw_all=True)
    assert hunger.is_emptying
    hunger.asked()
    assert not hunger.is_emptying
    hunger.looked(passed_over=True, saw_all=True)
    now_s += 1.0
    hunger.looked(passed_over=False, saw_all=True)  # Another worker has it.
    now_s += 4.0
    hunger.looked(passed_over=True, saw_all=True)
    assert not hunger.is_emptying


def looked(store: testing.PrivateStore) -> None:
    """Wait until the worker has looked whether there is something to do."""
    worker = store._engine.worker
    assert isinstance(worker, Worker)
    for _ in range(2):
        worker._bell.ring()
        until(lambda: not worker._bell._rung.is_set())
