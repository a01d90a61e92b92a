"""Runs: how they are started, found, refused, waited for, and taken up by whoever is there."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast import effect, flow, step, testing
from holdfast._stores.sqlite import sqlite_append
from holdfast.errors import (
    LeaseLost,
    RunBusy,
    RunConflict,
    RunFailed,
    RunHeld,
    RunNotFound,
    UsageError,
)
from tests.runtime.stops import Stop, interrupted, kinds

ROOT = Path(__file__).parents[2]

calls: list[str] = []


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


@step
def fetch_policy(topic: str) -> str:
    calls.append(topic)
    return f"{topic} policy"


@flow
def policies(topic: str, copies: int = 1, *, style: str = "plain") -> str:
    return ";".join([fetch_policy(topic)] * copies) + style[:0]


@flow
async def async_policies(topic: str) -> str:
    return await fetch_policy.aio(topic)


def started(run_id: str = "r") -> Any:
    """Start a run whose step waits until it is let go."""
    at_work, free = threading.Event(), threading.Event()

    @step
    def waits() -> int:
        at_work.set()
        assert free.wait(10)
        return 7

    @flow
    def waiting() -> int:
        return waits()

    handle = waiting.start(run_id)
    assert at_work.wait(10)
    return waiting, handle, free


# -- one id, one input -------------------------------------------------------------------------


def test_positional_keyword_and_default_are_the_same_input(store):
    assert policies.run("r", "refund") == "refund policy"
    assert policies.run("r", topic="refund") == "refund policy"
    assert policies.run("r", "refund", 1, style="plain") == "refund policy"
    assert calls == ["refund"]
    assert store.get("r").input == {"topic": "refund", "copies": 1, "style": "plain"}


def test_a_completed_run_returns_at_once_and_executes_nothing(store):
    policies.run("r", "refund")
    before = kinds(store, "r")
    assert policies.run("r", "refund") == "refund policy"
    assert policies.start("r", "refund").result(timeout=5) == "refund policy"
    assert policies.submit("r", "refund").result(timeout=5) == "refund policy"
    assert kinds(store, "r") == before
    assert calls == ["refund"]


def test_a_parameter_that_was_added_takes_todays_default(store):
    def one(a: int) -> int:
        return a

    def two(a: int, b: int = 5) -> int:
        return a + b

    flow(name="growing")(one).submit("r", 1)
    two.__qualname__ = one.__qualname__
    assert flow(name="growing")(two).run("r", 1) == 6
    with pytest.raises(RunConflict, match="b"):
        flow(name="growing")(two).run("r", 1, b=6)


@pytest.mark.parametrize("call", ["run", "start", "submit"])
def test_other_input_is_a_conflict_that_names_what_differs(store, call):
    policies.run("r", "refund")
    before = kinds(store, "r")
    with pytest.raises(RunConflict, match="it differs in: style, topic"):
        getattr(policies, call)("r", "invoice", style="x")
    with pytest.raises(RunConflict, match="as a run of 'policies'"):
        if call == "run":
            asyncio.run(async_policies.run("r", "refund"))
        else:
            getattr(async_policies, call)("r", "refund")
    assert kinds(store, "r") == before


def test_arguments_that_do_not_fit_say_so_and_start_nothing(store):
    with pytest.raises(UsageError, match="topic"):
        policies.run("r")  # type: ignore[call-arg]
    assert store.runs() == []


def test_variable_arguments_are_bound_too(holdfast_store):
    @flow
    def summed(*numbers: int, **named: int) -> int:
        return sum(numbers) + sum(named.values())

    assert summed.run("r", 1, 2, a=3) == 6
    assert summed.run("r", 1, 2, a=3) == 6
    with pytest.raises(RunConflict):
        summed.run("r", 1, 2, a=4)


def test_a_flow_may_have_a_parameter_called_run_id(holdfast_store):
    @flow
    def named(run_id: str) -> str:
        return run_id

    assert named.run("r", run_id="x") == "x"


# -- handles -----------------------------------------------------------------------------------


def test_a_handle_tells_status_and_result(store):
    _, handle, free = started()
    assert handle.status() == "running"
    with pytest.raises(TimeoutError):
        handle.result(timeout=0.01)
    free.set()
    assert handle.result(timeout=10) == 7
    assert handle.status() == "completed"
    assert store.handle("r").result() == 7


def test_a_handle_raises_why_there_is_no_result(store):
    @step
    def fails() -> None:
        raise ValueError("no")

    @effect
    def doubtful() -> None:
        raise ValueError("no")

    @flow
    def work(which: str) -> None:
        fails() if which == "fails" else doubtful()

    with pytest.raises(RunFailed, match="StepFailed"):
        work.start("a", "fails").result(timeout=10)
    with pytest.raises(RunHeld, match="in_doubt"):
        work.start("b", "doubtful").result(timeout=10)
    with pytest.raises(RunNotFound):
        store.handle("nobody")


def test_submit_records_and_executes_nothing(store):
    handle = policies.submit("r", "refund")
    assert handle.status() == "queued"
    assert calls == []
    assert policies.run("r", "refund") == handle.result(timeout=5) == "refund policy"


def test_async_callers_have_the_same_calls(holdfast_store):
    async def main() -> list[str]:
        started = await policies.aio.start("b", "b")
        await policies.aio.submit("c", "c")
        return [
            await policies.aio.run("a", "a"),
            await asyncio.to_thread(started.result, 10),
            await policies.aio.run("c", "c"),
            await async_policies.aio.run("d", "d"),
            await async_policies.run("e", "e"),
        ]

    assert asyncio.run(main()) == [f"{x} policy" for x in "abcde"]


def test_an_async_flow_can_be_started_from_sync_code(store):
    assert async_policies.start("r", "refund").result(timeout=10) == "refund policy"


def test_a_stream_ends_with_the_run(store):
    @flow
    def talks() -> None:
        for word in ("one", "two"):
            holdfast.emit(word)

    handle = talks.start("r")
    assert [item.value for item in handle.stream()] == ["one", "two"]
    first = next(iter(handle.stream()))
    assert [item.value for item in handle.stream(after=first.seq)] == ["two"]


def test_tags_are_kept_and_found(store):
    policies.with_options(tags={"customer": "acme"}).run("r", "refund")
    policies.run("other", "refund")
    assert store.get("r").tags == {"customer": "acme"}
    assert [run.run_id for run in store.runs(tags={"customer": "acme"})] == ["r"]


# -- one owner ---------------------------------------------------------------------------------


def test_a_run_at_work_in_this_process_is_busy(store):
    waiting, handle, free = started()
    with pytest.raises(RunBusy, match="this process"):
        waiting.run("r")
    free.set()
    assert handle.result(timeout=10) == 7


def test_start_gives_a_handle_to_a_run_that_is_at_work(holdfast_store):
    waiting, handle, free = started()
    try:
        again = waiting.start("r")
    finally:
        free.set()
        handle.result(timeout=10)
    assert again.result(timeout=10) == 7


def test_submit_gives_a_handle_to_a_run_that_is_at_work(store):
    waiting, _, free = started()
    again = waiting.submit("r")
    assert again.status() == "running"
    free.set()
    assert again.result(timeout=10) == 7


def test_two_threads_that_start_one_run_at_the_same_moment():
    """One has it, the other is told so. (Both must not think that they are the one.)"""
    faults = testing.StoreFaults()
    looked = threading.Event()
    at_work, free = threading.Event(), threading.Event()

    @effect
    def charge() -> int:
        calls.append("charge")
        at_work.set()
        assert free.wait(10)
        return 1

    @flow
    def work() -> int:
        return charge()

    out: list[Any] = []

    def run() -> None:
        try:
            out.append(work.run("r"))
        except Exception as error:
            out.append(type(error))

    with testing.store(faults=faults) as store:
        work.submit("r")
        # The first thread has found that nobody has it here, and is held before it claims.
        faults.delay("claim", at=1, until=looked)
        first = threading.Thread(target=run)
        first.start()
        while faults.count("claim") < 1:
            threading.Event().wait(0.005)
        second = threading.Thread(target=run)
        second.start()
        while second.is_alive() and not at_work.is_set():
            threading.Event().wait(0.005)
        looked.set()
        assert at_work.wait(10)
        free.set()
        first.join(10)
        second.join(10)
        assert store.get("r").status == "completed"
    assert sorted(map(str, out)) == sorted(["1", str(RunBusy)])
    assert calls == ["charge"]


def test_many_threads_with_one_id(sqlite):
    """What a web handler does when a client sends its request twice."""

    @effect
    def charge(i: int) -> int:
        calls.append(f"charge {i}")
        return i

    @flow
    def work(i: int) -> int:
        return charge(i)

    strange: list[Any] = []
    for i in range(10):
        gate = threading.Barrier(6)

        def run(i: int = i, gate: threading.Barrier = gate) -> None:
            gate.wait()
            try:
                assert work.run(f"r-{i}", i) == i
            except RunBusy:
                pass
            except Exception as error:
                strange.append(repr(error))

        threads = [threading.Thread(target=run) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert strange == []
    assert sorted(calls) == sorted(f"charge {i}" for i in range(10))


def test_a_fenced_execution_stops_at_its_next_durable_call(store):
    """Another owner took the run over: the caller hears LeaseLost, and nothing more is written."""
    after: list[str] = []

    @step
    def taken_over() -> int:
        row = store._backend.get("r")
        expired_us = row.lease_until_us + 1
        store._backend.claim("r", store._backend.register_owner(), expired_us)
        return 1

    @effect
    def charge() -> None:
        after.append("charged")

    @flow
    def work() -> None:
        try:
            taken_over()
        except Exception:
            after.append("seen as an exception")
        finally:
            after.append("finally")
        charge()

    with pytest.raises(LeaseLost):
        work.run("r")
    assert after == ["finally"]
    assert kinds(store, "r") == ["run_started", "run_claimed", "run_claimed"]


# -- recovery ----------------------------------------------------------------------------------

DIES = """
import os, sys, holdfast
from tests.runtime.test_runs import dies, dies_async
import asyncio
store = holdfast.open(sys.argv[1])
if sys.argv[2] == "sync":
    dies.run(sys.argv[3])
else:
    asyncio.run(dies_async.run(sys.argv[3]))
"""

lethal = [False]


@step
def stands_before() -> str:
    calls.append("before")
    return "before"


@step
def deadly() -> str:
    if lethal[0]:
        import os

        os._exit(9)
    return "survived"


@flow
def dies() -> str:
    return stands_before() + " " + deadly()


@flow
async def dies_async() -> str:
    return await stands_before.aio() + " " + await deadly.aio()


def test_recover_takes_up_what_dead_processes_left(sqlite):
    code = DIES.replace(
        "store =", "from tests.runtime import test_runs as here\nhere.lethal[0] = True\nstore ="
    )
    for colour, run_id in (("sync", "a"), ("sync", "b"), ("async", "c")):
        done = subprocess.run(
            [sys.executable, "-c", code, sqlite.url, colour, run_id],
            capture_output=True,
            cwd=ROOT,
            check=False,
        )
        assert done.returncode == 9, done.stderr.decode()
    policies.submit("d", "refund")
    assert sorted(sqlite.recover()) == ["a", "b", "c", "d"]
    assert [sqlite.get(run_id).result for run_id in "abc"] == ["before survived"] * 3
    assert calls == ["refund"]  # What the dead had recorded is not executed again.
    assert sqlite.recover() == []
    assert sqlite.verify() == []


def test_recover_leaves_what_is_at_work_held_failed_and_unknown(store):
    waiting, handle, free = started("at work")

    @step
    def fails() -> None:
        raise ValueError

    @flow
    def failing() -> None:
        fails()

    @flow(name="goes_away")
    def gone() -> None: ...

    with pytest.raises(RunFailed):
        failing.run("failed")
    gone.submit("unknown")
    from holdfast._runtime import registry

    registry.flows.pop("goes_away")
    assert store.recover() == []
    free.set()
    handle.result(timeout=10)


def test_one_run_that_fails_does_not_stop_recovery(store):
    @step
    def fails() -> None:
        raise ValueError

    @flow
    def failing() -> None:
        fails()

    failing.submit("a")
    policies.submit("b", "x")
    assert sorted(store.recover()) == ["a", "b"]
    assert (store.get("a").status, store.get("b").status) == ("failed", "completed")


@pytest.mark.filterwarnings("ignore:coroutine")
def test_recover_in_an_event_loop_leaves_no_run_behind(holdfast_store):
    async_policies.submit("r", "x")

    async def main() -> None:
        try:
            holdfast_store.recover()
        except (RuntimeError, UsageError):
            pass

    asyncio.run(main())
    assert asyncio.run(async_policies.run("r", "x")) == "x policy"


def test_an_interrupted_run_is_queued_and_goes_on(store):
    stop = Stop()

    @flow
    def work() -> str:
        found = fetch_policy("x")
        stop.here()
        return found

    interrupted(lambda: work.run("r"))
    assert store.get("r").status == "queued"
    assert store.recover() == ["r"]
    assert store.get("r").result == "x policy"
    assert calls == ["x"]


def test_closing_the_store_ends_what_is_at_work():
    with testing.store() as store:
        waiting, handle, free = started()
        store.close()
        free.set()
        handle._thread.join(10)
        assert not handle._thread.is_alive()
    with pytest.raises(UsageError, match="closed"):
        waiting.with_options(store=store).run("other")


def test_a_run_whose_end_is_committed_and_not_noticed_yet_is_not_busy(monkeypatch):
    """`handle.result()` may return before the thread of the run knows that its last write is through."""
    ended, go_on, looked = threading.Event(), threading.Event(), threading.Event()
    conclude = sqlite_append._Batch.conclude

    def late(batch):
        if any(row.status == "completed" for _, row in batch.leases):
            ended.set()
            go_on.wait(20)
        conclude(batch)

    monkeypatch.setattr(sqlite_append._Batch, "conclude", late)
    with testing.store() as store:
        wait_for = store._engine._left.wait_for

        def observed(predicate, timeout):
            def seen():
                free = predicate()
                looked.set()
                return free

            return wait_for(seen, timeout)

        handle = policies.start("r", "refund")
        assert ended.wait(20)
        assert handle.result(timeout=20) == "refund policy"
        monkeypatch.setattr(store._engine._left, "wait_for", observed)
        with ThreadPoolExecutor(1) as threads:
            again = threads.submit(policies.run, "r", "refund")
            assert looked.wait(20)
            go_on.set()
            assert again.result(20) == "refund policy"
    assert calls == ["refund"]
