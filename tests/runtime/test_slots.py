"""Runs that a worker took and that never began, and a worker whose places are all taken."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from holdfast import errors, flow, testing
from holdfast._runtime.commit import store_health
from holdfast._runtime.worker import worker as workers
from tests.runtime.facts import until

PATIENCE_S = 20.0


@flow(name="slots test awaited")
async def awaited(n: int) -> int:
    return n


@flow(name="slots test plain")
def plain(n: int) -> int:
    return n


class Gate:
    """Where a run waits."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.go = threading.Event()


gate = Gate()


@flow(name="slots test waiting")
def waiting() -> None:
    gate.inside.set()
    assert gate.go.wait(PATIENCE_S)


def test_async_runs_that_had_not_begun_are_given_back(
    store: testing.PrivateStore, monkeypatch: pytest.MonkeyPatch
):
    """The event loop is busy from before they come to it until the worker has ended."""
    monkeypatch.setattr(workers, "GRACE_S", 0.0)
    names = [f"r{n}" for n in range(10)]

    async def app() -> None:
        async with store.worker(flows=[awaited], drain_s=0) as worker:
            for name in names:
                awaited.submit(name, 1)
            until(lambda: sum(p.execution is not None for p in worker.places()) == len(names))
            ending = threading.Thread(target=worker.drain)
            ending.start()
            ending.join(PATIENCE_S)
        while worker.places():
            await asyncio.sleep(0)

    asyncio.run(app())
    rows = [store._backend.get(name) for name in names]
    assert [row.owner for row in rows if row is not None] == [None] * len(names)
    with store.worker(flows=[awaited]):
        for name in names:
            assert store.handle(name).result(PATIENCE_S) == 1


def test_a_task_that_is_cancelled_before_its_first_moment_is_given_back(
    store: testing.PrivateStore,
):
    async def app() -> None:
        loop = asyncio.get_running_loop()
        make = loop.create_task

        def cancelled(work: Any, **kwargs: Any) -> Any:
            task: asyncio.Task[Any] = make(work, **kwargs)
            if str(kwargs.get("name")).startswith("holdfast run"):
                task.cancel()
            return task

        async with store.worker(flows=[awaited]) as worker:
            loop.create_task = cancelled  # type: ignore[method-assign, assignment]
            awaited.submit("r", 1)
            while not store._engine.abandoned():
                await asyncio.sleep(0.001)
            loop.create_task = make  # type: ignore[method-assign]
            assert worker.places() == []
            store._engine.heartbeat.beat()
            assert await asyncio.to_thread(store.handle("r").result, PATIENCE_S) == 1

    asyncio.run(app())


def test_a_thread_that_cannot_be_started_costs_no_place(
    store: testing.PrivateStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
):
    start = threading.Thread.start
    refused: list[str] = []

    def limited(thread: threading.Thread) -> None:
        if thread.name == "holdfast-run" and not refused:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with store.worker(flows=[plain]) as worker:
        for n in range(3):
            plain.submit(f"r{n}", n)
        for n in range(3):
            assert store.handle(f"r{n}").result(PATIENCE_S) == n
        until(lambda: not worker.places())
    assert refused
    assert "can't start new thread" in caplog.text


# -- whether the store can be used -------------------------------------------------------------


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker of one place looks often, and is soon impatient."""
    global gate
    gate = Gate()
    monkeypatch.setattr(store_health, "LOOK_S", 0.01)
    monkeypatch.setattr(store_health, "SILENT_S", 0.2)


@pytest.mark.usefixtures("full")
def test_a_full_worker_sees_that_the_store_fails_and_that_it_is_back(
    store: testing.PrivateStore, caplog: pytest.LogCaptureFixture
):
    broken = threading.Event()
    look = store._backend.by_number

    def faulty(number: int) -> object:
        if broken.is_set():
            raise errors.StoreFull("no space")
        return look(number)

    store._backend.by_number = faulty  # type: ignore[method-assign, assignment]
    with store.worker(flows=[waiting], concurrency=1) as worker:
        waiting.submit("r")
        assert gate.inside.wait(PATIENCE_S)
        assert worker.trouble is None
        broken.set()
        until(lambda: isinstance(worker.trouble, errors.StoreFull))
        broken.clear()
        until(lambda: worker.trouble is None)
        gate.go.set()
    assert caplog.text.count("cannot use the store") == 1
    assert caplog.text.count("can be used again") == 1
    assert "Traceback" not in caplog.text


@pytest.mark.usefixtures("full")
def test_a_call_that_is_still_tried_again_is_trouble_already(store: testing.PrivateStore):
    hanging, go_on = threading.Event(), threading.Event()
    look = store._backend.by_number

    def silent(number: int) -> object:
        if hanging.is_set():
            assert go_on.wait(PATIENCE_S)
        return look(number)

    store._backend.by_number = silent  # type: ignore[method-assign, assignment]
    with store.worker(flows=[waiting], concurrency=1) as worker:
        waiting.submit("r")
        assert gate.inside.wait(PATIENCE_S)
        hanging.set()
        until(lambda: "does not answer" in str(worker.trouble))
        assert worker.store_health.silent_s() >= 0.2
        hanging.clear()
        go_on.set()
        until(lambda: worker.trouble is None)
        gate.go.set()


def test_a_pulse_that_fails_is_trouble_until_one_goes_through(store: testing.PrivateStore):
    pulse = store._backend.pulse
    with store.worker(flows=[waiting]) as worker:

        def fails(*_args: object) -> object:
            raise errors.StoreFull("no space")

        store._backend.pulse = fails  # type: ignore[method-assign, assignment]
        store._engine.heartbeat.beat()
        assert isinstance(worker.trouble, errors.StoreFull)
        store._backend.pulse = pulse  # type: ignore[method-assign]
        store._engine.heartbeat.beat()
        assert worker.trouble is None


def test_who_is_reached_by_one_call_is_reached(store: testing.PrivateStore):
    watch = store_health.StoreHealth("w", "memory:", lambda: False)
    away = errors.StoreFailed("gone")
    away.unreachable = True
    for what, error in (("pulse", away), ("take", errors.StoreFull("no space"))):
        with pytest.raises(errors.StoreError), watch.asking(what):
            raise error
    with watch.asking("pulse"):
        pass
    assert isinstance(watch.trouble, errors.StoreFull), "that one is not mended by a pulse"
    with watch.asking("take"):
        pass
    assert watch.trouble is None
    assert watch.silent_s() < PATIENCE_S
