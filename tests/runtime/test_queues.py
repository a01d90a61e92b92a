"""Queues: priorities, delays and limits, across workers, and what a whole queue is asked for."""

from __future__ import annotations

import datetime as dt
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

import holdfast
from holdfast import Queue, errors, flow, step, testing
from tests.runtime.facts import until

PATIENCE_S = 20.0


class Counting:
    """How many calls are under way, and how many were at most, by name."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.now: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.order: list[str] = []
        self.go = threading.Event()

    def work(self, name: str, group: str) -> None:
        with self.lock:
            self.order.append(name)
            self.now[group] += 1
            self.now["all"] += 1
            for kind in (group, "all"):
                self.most[kind] = max(self.most[kind], self.now[kind])
        assert self.go.wait(PATIENCE_S)
        with self.lock:
            self.now[group] -= 1
            self.now["all"] -= 1


counting = Counting()


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    global counting
    counting = Counting()
    yield
    counting.go.set()


@step(name="queue test counted")
def counted(name: str, group: str) -> None:
    counting.work(name, group)


@flow(name="queue test job")
def job(name: str, group: str = "") -> str:
    counted(name, group)
    return name


@flow(name="queue test mail", queue=Queue("mail", concurrency=2))
def mail(name: str) -> str:
    counted(name, "")
    return name


def ended(store: testing.PrivateStore, *run_ids: str) -> None:
    for run_id in run_ids:
        store.handle(run_id).result(PATIENCE_S)


# -- order -------------------------------------------------------------------------------------


def test_a_larger_priority_comes_first(store: testing.PrivateStore):
    counting.go.set()
    for name, priority in (("low", -1), ("usual", None), ("high", 5), ("also high", 5)):
        job.with_options(priority=priority).submit(name, name)
    with store.worker(flows=[job], concurrency=1):
        ended(store, "low", "usual", "high", "also high")
    assert counting.order == ["high", "also high", "usual", "low"]


def test_a_delayed_run_is_not_taken_before_its_time(store: testing.PrivateStore):
    counting.go.set()
    job.with_options(delay=dt.timedelta(hours=1)).submit("later", "later")
    job.with_options(delay=0.3).submit("soon", "soon")
    [queue] = store.queues()
    assert (queue.ready, queue.delayed) == (0, 2)
    due_us = store._backend.get("soon").wake_us  # type: ignore[union-attr]
    with store.worker(flows=[job]):
        ended(store, "soon")
        assert due_us is not None
        first = next(e for e in store.history("soon") if e.kind == "run_claimed")
        assert first.at.timestamp() * 1e6 >= due_us - 1
        assert store.get("later").status == "queued"
    assert "not due before" in str(store.explain("later"))


def test_no_queue_starves_another(store: testing.PrivateStore):
    """One that is always full, and comes first by name, leaves room for a small one."""
    for number in range(40):
        job.with_options(queue="a").submit(f"a{number}", f"a{number}")
    job.with_options(queue="z").submit("z", "z")
    counting.go.set()
    with store.worker(flows=[job], concurrency=2):
        ended(store, *(f"a{number}" for number in range(40)), "z")
    assert counting.order.index("z") < 35


def test_a_worker_takes_only_from_its_queues(store: testing.PrivateStore):
    counting.go.set()
    job.with_options(queue="other").submit("other", "x")
    job.with_options(queue="mine").submit("mine", "x")
    with store.worker(flows=[job], queues=["mine"]):
        ended(store, "mine")
        assert store.get("other").status == "queued"


# -- limits ------------------------------------------------------------------------------------


def test_the_limit_that_a_flow_declares_holds(store: testing.PrivateStore):
    for number in range(6):
        mail.submit(f"m{number}", f"m{number}")
    with store.worker(flows=[mail], concurrency=10):
        until(lambda: counting.now["all"] == 2)
        [queue] = store.queues()
        assert (queue.name, queue.running, queue.ready) == ("mail", 2, 4)
        assert queue.saturation == 1.0
        assert queue.workers == 1
        counting.go.set()
        ended(store, *(f"m{number}" for number in range(6)))
    assert counting.most["all"] == 2


def test_a_limit_that_somebody_set_stays_until_the_code_declares_another(
    store: testing.PrivateStore,
):
    def limit() -> int | None:
        return next(queue.concurrency for queue in store.queues() if queue.name == "declared")

    def started(concurrency: int) -> None:
        @flow(name="queue test declared", queue=Queue("declared", concurrency=concurrency))
        def declared() -> None: ...

        with store.worker(flows=[declared]):
            pass

    started(2)
    assert limit() == 2
    store.set_queue(Queue("declared", concurrency=10))
    started(2)
    assert limit() == 10, "another worker of the same code is no deploy"
    started(3)
    assert limit() == 3, "the code says something new"


def test_a_limit_holds_across_workers(sqlite: testing.PrivateStore):
    """Two opened stores are two owners: two workers, one limit."""
    with holdfast.open(sqlite.url, default=False) as other:
        for number in range(6):
            mail.submit(f"m{number}", f"m{number}")
        with sqlite.worker(flows=[mail]), other.worker(flows=[mail]):
            until(lambda: counting.now["all"] == 2)
            counting.go.set()
            ended(sqlite, *(f"m{number}" for number in range(6)))
    assert counting.most["all"] == 2


def test_a_limit_per_key(store: testing.PrivateStore):
    store.set_queue(Queue("default", concurrency_per_key=1))
    for number in range(3):
        for key in ("kim", "lee"):
            name = f"{key}{number}"
            job.with_options(limit_key=f"customer:{key}").submit(name, name, key)
    with store.worker(flows=[job], concurrency=10):
        until(lambda: counting.now["kim"] == 1 and counting.now["lee"] == 1)
        counting.go.set()
        ended(store, *(f"{key}{n}" for n in range(3) for key in ("kim", "lee")))
    assert (counting.most["kim"], counting.most["lee"]) == (1, 1)


def test_a_rate(store: testing.PrivateStore):
    counting.go.set()
    store.set_queue(Queue("default", rate=3, period=dt.timedelta(hours=1)))
    for number in range(5):
        job.submit(f"r{number}", f"r{number}")
    with store.worker(flows=[job]):
        ended(store, "r0", "r1", "r2")
        assert (store.queues()[0].ready, store.queues()[0].running) == (2, 0)
        store.set_queue(Queue("default", rate=5, period=3600))
        ended(store, "r3", "r4")


def test_a_paused_queue_is_left_alone_until_it_goes_on(store: testing.PrivateStore):
    counting.go.set()
    store.set_queue(Queue("mail", concurrency=2, paused=True))
    mail.submit("m", "m")
    with store.worker(flows=[mail, job]):
        job.submit("j", "j").result(PATIENCE_S)
        assert store.get("m").status == "queued", "the start of a worker does not unpause it"
        assert "is paused" in str(store.explain("m"))
        store.set_queue(Queue("mail"))
        ended(store, "m")


def test_a_queue_keeps_its_limits_while_it_is_paused(store: testing.PrivateStore):
    store.set_queue(Queue("mail", concurrency=2))
    store.pause_queue("mail", actor="kim")
    [paused] = [queue for queue in store.queues() if queue.name == "mail"]
    assert (paused.paused, paused.concurrency) == (True, 2)
    store.resume_queue("mail")
    [resumed] = [queue for queue in store.queues() if queue.name == "mail"]
    assert (resumed.paused, resumed.concurrency) == (False, 2)
    with pytest.raises(
        errors.UsageError, match="pause_queue.name=''.: expected `str` of length >= 1"
    ):
        store.pause_queue("")


def test_a_queue_or_schedule_that_is_not_there_is_not_found(store: testing.PrivateStore):
    for decide in (store.resume_queue, store.pause_schedule, store.resume_schedule):
        with pytest.raises(errors.NotFound, match="there is no (queue|schedule) 'nope'"):
            decide("nope")
    assert store.queues() == []
    store.pause_queue("nope")  # It may be paused before it has a run.
    store.resume_queue("nope")


# -- many together -----------------------------------------------------------------------------


broken = threading.Event()


@flow(name="queue test fragile", queue="fragile")
def fragile(name: str) -> str:
    if broken.is_set():
        raise ValueError(name)
    return name


def test_failed_runs_of_a_queue_are_listed_and_taken_up_together(store: testing.PrivateStore):
    broken.set()
    with store.worker(flows=[fragile, job]):
        for number in range(3):
            fragile.submit(f"f{number}", "x")
            store.wait_until(f"f{number}", status="failed")
        counting.go.set()
        job.submit("other", "x")
        ended(store, "other")
        assert [run.run_id for run in store.runs(queue="fragile", status="failed")] == [
            "f2",
            "f1",
            "f0",
        ]
        broken.clear()
        told = store.resume_all(queue="fragile", actor="kim")
        assert [one.run_id for one in told] == ["f2", "f1", "f0"]
        assert not [one for one in told if one.error]
        ended(store, "f0", "f1", "f2")
    assert store.resume_all(queue="fragile") == []


def test_the_error_of_one_does_not_stop_the_others(store: testing.PrivateStore, monkeypatch):
    from holdfast._operator.act import run_decisions

    broken.set()
    with store.worker(flows=[fragile]):
        for number in range(3):
            fragile.submit(f"f{number}", "x")
            store.wait_until(f"f{number}", status="failed")
    broken.clear()
    resume = run_decisions.resume

    def refuses(kept: Any, run_id: str, **options: Any) -> Any:
        if run_id == "f1":
            raise errors.StaleView(run_id)
        return resume(kept, run_id, **options)

    monkeypatch.setattr(run_decisions, "resume", refuses)
    told = {one.run_id: one.error for one in store.resume_all(queue="fragile")}
    assert told["f0"] is None
    assert told["f2"] is None
    assert told["f1"] is not None
    assert store.get("f1").status == "failed"
    with pytest.raises(errors.UsageError, match="quarantined"):
        store.resume_all(held_reason="cancelled")  # type: ignore[arg-type]


# -- deduplication, and mistakes ---------------------------------------------------------------


def test_submitting_again_is_the_same_run(store: testing.PrivateStore):
    counting.go.set()
    job.submit("r", "x")
    job.with_options(priority=3).submit("r", "x")
    with pytest.raises(errors.RunConflict):
        job.submit("r", "y")
    with store.worker(flows=[job]):
        ended(store, "r")
        job.submit("r", "x")
    assert counting.order == ["x"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"concurrency": 0}, "concurrency=0"),
        ({"concurrency_per_key": -1}, "concurrency_per_key=-1"),
        ({"rate": 1.5}, "rate=1.5"),
        ({"rate_per_key": True}, "rate_per_key=True"),
        ({"period": 0}, "more than 0 and at most a hundred years, not 0"),
        ({"period": "1 min"}, "seconds, a timedelta"),
        ({"name": ""}, "must not be empty"),
        ({"name": "a\nb"}, "control"),
    ],
)
def test_a_queue_is_checked_where_it_is_written(options: dict[str, Any], words: str):
    with pytest.raises(errors.UsageError, match=words):
        Queue(**{"name": "q", **options})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"priority": 1.0}, "whole number"),
        ({"delay": -1}, "0 or more and at most a hundred years, not -1"),
        ({"delay": "1 sec"}, "seconds, a timedelta"),
        ({"queue": 3}, "is a str"),
        ({"limit_key": ""}, "must not be empty"),
    ],
)
def test_options_are_checked_where_they_are_written(options: dict[str, Any], words: str):
    with pytest.raises(errors.UsageError, match=words):
        job.with_options(**options)


def test_a_flow_with_a_queue_that_is_none(store: testing.PrivateStore):
    with pytest.raises(errors.UsageError, match="is a str"):
        flow(queue=3)(lambda: None)  # type: ignore[call-overload]
    with pytest.raises(errors.UsageError, match=r"holdfast\.Queue"):
        store.set_queue("mail")  # type: ignore[arg-type]
