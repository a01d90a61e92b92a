"""`store.wait`, blocking and awaited, and `Store.default()`."""

from __future__ import annotations

import asyncio
import threading

import pytest

import holdfast
from holdfast import NOT_DONE, ask, effect, flow, testing
from holdfast.errors import RunEnded, RunFailed, RunHeld, RunNotFound, UsageError
from holdfast.types import Store


@flow(name="wait-asks")
def asks() -> str:
    return f"{ask('Color?', name='color')}"


@flow(name="wait-ends")
def ends() -> int:
    return 3


@flow(name="wait-fails")
def fails() -> None:
    raise ValueError("no")


@effect(name="wait-pay")
def pay() -> None:
    raise ConnectionError("reset")


@flow(name="wait-held")
def held() -> None:
    pay()


def test_it_returns_the_run_at_its_end(store):
    handle = ends.start("r")
    assert store.wait("r", timeout="10s").result == 3
    assert store.wait("r", until="completed").status == "completed"
    assert handle.result() == 3


def test_it_returns_when_a_worker_has_unloaded_the_run(store):
    asks.submit("r")
    with store.worker(flows=[asks]):
        run = store.wait("r", until="waiting", timeout="10s")
        assert run.status == "waiting"
        assert "color" in str(run.waiting_for)
        store.answer("r", "color", "red", actor="ana")
        assert store.wait("r", until=["completed", "failed"], timeout=10).result == "red"


def test_a_wait_for_a_status_reads_no_journal(store, monkeypatch):
    asks.submit("r")
    loads: list[object] = []
    load = store._backend.load

    def counted(*given):
        loads.append(given)
        return load(*given)

    monkeypatch.setattr(store._backend, "load", counted)
    with pytest.raises(TimeoutError, match="still queued"):
        store.wait("r", until="completed", timeout=0.05)
    assert loads == []
    assert store.wait("r", until="queued").status == "queued"
    assert loads


def test_a_function_of_the_run_says_until_when(store):
    handle = asks.start("r")
    run = store.wait("r", until=lambda run: store.questions(run_id=run.run_id), timeout="10s")
    assert run.run_id == "r"
    assert [question.name for question in store.questions(run_id="r")] == ["color"]
    store.answer("r", "color", "blue", actor="ana")
    assert handle.result(timeout="10s") == "blue"


def test_without_a_condition_it_waits_until_the_run_goes_no_further(store):
    with pytest.raises(RunFailed):
        fails.run("failed")
    assert store.wait("failed").status == "failed"
    with pytest.raises(RunHeld):
        held.run("held")
    assert store.wait("held").held_reason == "in_doubt"
    store.settle("held", "wait-pay", NOT_DONE, actor="ana")
    with pytest.raises(TimeoutError, match="run 'held' is still queued after 0.01 s"):
        store.wait("held", timeout="10ms")


def test_a_run_that_has_ended_cannot_come_to_anything_else(store):
    ends.run("r")
    with pytest.raises(RunEnded, match="is completed: it will not come to what"):
        store.wait("r", until="waiting")
    with pytest.raises(RunEnded):
        store.wait("r", until=lambda run: run.result == 4)
    with pytest.raises(RunNotFound):
        store.wait("nobody")


@pytest.mark.parametrize("until", ["done", "", [], 3, None, ["held", "over"]])
def test_a_condition_is_checked_at_once(holdfast_store, until):
    ends.run("r")
    with pytest.raises(UsageError):
        holdfast_store.wait("r", until=until)


def test_an_event_loop_awaits_it(store):
    seen: list[str] = []

    async def main() -> None:
        with pytest.raises(UsageError, match=r"await store.aio.wait"):
            store.wait("r")
        handle = await asks.aio.start("r")
        run = await store.aio.wait(
            "r", until=lambda run: store.questions(run_id=run.run_id), timeout="10s"
        )
        seen.append(run.status)
        with pytest.raises(TimeoutError):
            await store.aio.wait("r", timeout=0.01)
        await asyncio.to_thread(store.answer, "r", "color", "red", actor="ana")
        assert (await store.aio.wait("r", until="completed", timeout="10s")).result == "red"
        with pytest.raises(RunEnded):
            await store.aio.wait("r", until="held")
        assert await handle.aio.result(timeout="10s") == "red"

    asyncio.run(main())
    assert len(seen) == 1


def test_the_function_of_an_awaited_wait_does_not_run_in_the_loop(holdfast_store):
    ends.run("r")
    threads: list[threading.Thread] = []

    def noted(_run: object) -> bool:
        threads.append(threading.current_thread())
        return True

    asyncio.run(holdfast_store.aio.wait("r", until=noted))
    assert threads != [threading.main_thread()]


def test_the_default_store_is_the_one_that_runs_use(tmp_path):
    with testing.store() as opened:
        ends.run("r")
        default = Store.default()
        assert default.get("r").result == 3
        assert default.url == opened.url
    with holdfast.open(f"sqlite:///{tmp_path}/mine.db") as mine:
        assert Store.default().url == mine.url


def test_the_default_store_is_opened_if_there_is_none(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path}/found.db")
    with Store.default() as default:
        assert default.url.endswith("found.db")
        ends.run("r")
        assert default.wait("r").status == "completed"
