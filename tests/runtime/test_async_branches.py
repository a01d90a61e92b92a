"""Branches of async flows: tasks, plain asyncio.gather, cancellation, sync steps in threads."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import holdfast
from holdfast import Done, aio, effect, flow, step
from holdfast.errors import RunFailed, RunHeld, StepFailed
from tests.runtime.stops import Stop, interrupted, steps

calls: list[Any] = []


@pytest.fixture(autouse=True)
def _no_calls():
    calls.clear()


@step
async def fetch(x: Any) -> Any:
    calls.append(x)
    await asyncio.sleep(0)
    if isinstance(x, str) and x.startswith("bad"):
        raise ValueError(x)
    return x


@step
def sync_fetch(x: Any) -> Any:
    calls.append(x)
    return x, threading.current_thread().name


async def two(x: int) -> list[int]:
    return [await fetch(x), await fetch(x + 1)]


def test_gather_and_each(store):
    stop = Stop()

    @flow
    async def work() -> list[Any]:
        found: list[Any] = list(await aio.gather(two(0), two(10)))
        found += await aio.each(two, [20, 30], max_concurrency=1)
        stop.here()
        return [*found, await fetch(99)]

    interrupted(lambda: asyncio.run(work.run("r")))
    assert asyncio.run(work.run("r")) == [[0, 1], [10, 11], [20, 21], [30, 31], 99]
    assert sorted(calls) == [0, 1, 10, 11, 20, 21, 30, 31, 99]
    assert "gather[1]/fetch#2" in steps(store, "r")
    assert "each[0]/fetch" in steps(store, "r")
    assert store.verify() == []


def test_every_branch_finishes_then_the_first_failure_in_order(store):
    @flow
    async def work() -> str:
        try:
            await aio.gather(two(0), fetch("bad one"), fetch("bad two"), two(10))
        except StepFailed as failed:
            return failed.message
        return ""

    assert asyncio.run(work.run("r")) == "bad one"
    assert sorted(map(str, calls)) == ["0", "1", "10", "11", "bad one", "bad two"]


def test_collect_and_keys(holdfast_store):
    @flow
    async def work() -> list[str]:
        found = await aio.each(
            fetch, ["a", "bad", "c"], key=lambda item: f"k {item}", failures="collect"
        )
        return [type(item).__name__ for item in found]

    assert asyncio.run(work.run("r")) == ["str", "StepFailed", "str"]
    assert "each[k a]/fetch" in steps(holdfast_store, "r")


def test_at_once_is_kept_by_tasks(holdfast_store):
    now = most = 0

    @step
    async def counts(i: int) -> int:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1
        return i

    @flow
    async def work() -> list[int]:
        return await aio.each(counts, range(20), max_concurrency=3)

    assert asyncio.run(work.run("r")) == list(range(20))
    assert most == 3


def test_sync_steps_run_in_threads_side_by_side(store):
    gate = threading.Barrier(3)

    @step
    def meets(i: int) -> int:
        gate.wait(10)
        return i

    @flow
    async def work() -> list[Any]:
        found = list(await aio.gather(meets.aio(0), meets.aio(1), meets.aio(2)))
        return [*found, *await aio.each(sync_fetch, [3])]

    found = asyncio.run(work.run("r"))
    assert found[:3] == [0, 1, 2]
    assert found[3][1].startswith("holdfast-step")


def test_a_plain_gather_of_steps_replays(store):
    """Keys are taken when a step is called, so it does not matter who is faster."""
    stop = Stop()

    @step
    async def slow(x: int) -> int:
        calls.append(x)
        await asyncio.sleep(0.01 * (3 - x))
        return x

    @flow
    async def work() -> list[int]:
        found = await asyncio.gather(slow(0), slow(1), slow(2))
        stop.here()
        return list(found)

    interrupted(lambda: asyncio.run(work.run("r")))
    assert asyncio.run(work.run("r")) == [0, 1, 2]
    assert sorted(calls) == [0, 1, 2]


def test_a_task_group_and_wait_for_of_steps_replay(store):
    stop = Stop()

    @flow
    async def work() -> list[int]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(fetch(x)) for x in range(3)]
        found = [task.result() for task in tasks]
        found.append(await asyncio.wait_for(fetch(3), 10))
        stop.here()
        return found

    interrupted(lambda: asyncio.run(work.run("r")))
    assert asyncio.run(work.run("r")) == [0, 1, 2, 3]
    assert sorted(calls) == [0, 1, 2, 3]


def test_a_helper_in_a_task_of_its_own_is_refused(holdfast_store):
    @flow
    async def work() -> None:
        await asyncio.create_task(two(1))

    with pytest.raises(RunFailed, match=r"task that run 'r' does not know.*aio\.gather.*adapter"):
        asyncio.run(work.run("r"))
    assert calls == []


def test_gather_takes_awaitables(holdfast_store):
    @flow
    async def work() -> None:
        await aio.gather(lambda: 1)  # type: ignore[call-overload]

    with pytest.raises(RunFailed, match="awaitables"):
        asyncio.run(work.run("r"))


def test_a_hold_in_one_task_lets_the_others_effects_finish(store):
    @effect
    async def doubtful() -> str:
        await asyncio.sleep(0.01)
        raise ConnectionError

    @effect
    async def charge() -> str:
        await asyncio.sleep(0.1)
        calls.append("charged")
        return "charged"

    @flow
    async def work() -> list[str]:
        return list(await aio.gather(doubtful(), charge()))

    with pytest.raises(RunHeld):
        asyncio.run(work.run("r"))
    assert steps(store, "r")[charge.name] == "completed"
    store.settle("r", doubtful.name, Done("found"), actor="kim")
    assert asyncio.run(work.run("r")) == ["found", "charged"]
    assert calls == ["charged"]


# -- cancellation ------------------------------------------------------------------------------


async def cancelled_when(work: Any, ready: asyncio.Event) -> None:
    task = asyncio.ensure_future(work)
    await asyncio.wait_for(ready.wait(), 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_a_cancelled_task_gives_its_run_back(store):
    async def main() -> None:
        ready = asyncio.Event()

        @step
        async def waits() -> int:
            calls.append("waits")
            if len(calls) == 2:
                ready.set()
                await asyncio.sleep(10)
            return 1

        @step
        async def first() -> int:
            calls.append("first")
            return 1

        @flow
        async def work() -> int:
            return await first() + await waits()

        await cancelled_when(work.run("r"), ready)
        assert store.get("r").status == "queued"
        assert steps(store, "r") == {first.name: "completed", waits.name: "cancelled"}
        assert await work.run("r") == 2

    asyncio.run(main())
    assert calls == ["first", "waits", "waits"]


def test_cancelled_branches_leave_an_effect_in_doubt_and_a_step_not_done(store):
    async def main() -> None:
        ready = asyncio.Event()
        slow = [True]

        @step
        async def waits() -> int:
            if slow:
                await asyncio.sleep(10)
            return 1

        @effect
        async def charge() -> int:
            calls.append("charge")
            ready.set()
            await asyncio.sleep(10)
            return 1

        @flow
        async def work() -> list[int]:
            return list(await aio.gather(waits(), charge()))

        await cancelled_when(work.run("r"), ready)
        slow.clear()
        assert steps(store, "r") == {waits.name: "cancelled", charge.name: "in_doubt"}
        with pytest.raises(RunHeld):
            await work.run("r")
        store.settle("r", charge.name, Done(5), actor="kim")
        assert await work.run("r") == [1, 5]

    asyncio.run(main())
    assert calls == ["charge"]


def test_a_sync_effect_at_work_in_a_thread_is_seen_through(store):
    async def main() -> None:
        ready = asyncio.Event()
        loop = asyncio.get_running_loop()
        free = threading.Event()

        @effect
        def charge() -> int:
            loop.call_soon_threadsafe(ready.set)
            assert free.wait(10)
            return 5

        @flow
        async def work() -> int:
            return await charge.aio()

        task = asyncio.ensure_future(work.run("r"))
        await ready.wait()
        task.cancel()
        await asyncio.sleep(0.02)
        assert not task.done()
        free.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert steps(store, "r") == {charge.name: "completed"}
        assert await work.run("r") == 5

    asyncio.run(main())


@pytest.mark.parametrize("way", ["timeout", "task group"])
def test_an_effect_that_the_flow_itself_cancelled_is_not_forgotten(holdfast_store, way):
    """I5: never silently skipped. Its doubt must be settled before the run can complete."""
    sent: list[str] = []

    @effect
    async def charge() -> str:
        sent.append("charge")
        await asyncio.sleep(10)
        return "charged"

    @flow
    async def work() -> str:
        try:
            if way == "timeout":
                async with asyncio.timeout(None) as limit:
                    task = asyncio.ensure_future(charge())
                    while not sent:
                        await asyncio.sleep(0.001)
                    limit.reschedule(0)
                    return await task
            async with asyncio.TaskGroup() as group:
                group.create_task(charge())
                while not sent:
                    await asyncio.sleep(0.001)
                raise LookupError
        except (TimeoutError, ExceptionGroup):
            return await fetch("went on")

    with pytest.raises(RunHeld):
        asyncio.run(work.run("r"))


def test_many_runs_in_one_loop_and_threads_beside_it(sqlite):
    """The committer is shared by event loops and threads; nobody waits for ever."""

    @step
    async def one(i: int) -> int:
        return i

    @step(commit="grouped")
    async def grouped(i: int) -> int:
        return i

    @flow
    async def awaited(i: int) -> int:
        holdfast.context.now()
        return await one(i) + await grouped(i) + (await sync_fetch.aio(0))[0]

    @step
    def plain(i: int) -> int:
        return i

    @flow
    def blocking(i: int) -> int:
        holdfast.context.uuid4()
        return plain(i) + plain(i)

    async def main() -> list[int]:
        return list(await asyncio.gather(*(awaited.run(f"a-{i}", i) for i in range(50))))

    out: list[int] = []
    threads = [
        threading.Thread(target=lambda i=i: out.append(blocking.run(f"b-{i}", i)))
        for i in range(20)
    ]
    for thread in threads:
        thread.start()
    assert asyncio.run(main()) == [2 * i for i in range(50)]
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert sorted(out) == [2 * i for i in range(20)]
    assert sqlite.verify() == []


def test_one_store_serves_one_event_loop_after_the_other(store):
    @flow
    async def work(i: int) -> int:
        return await fetch(i)

    assert [asyncio.run(work.run(f"r-{i}", i)) for i in range(5)] == list(range(5))


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:coroutine:RuntimeWarning")
def test_an_event_loop_that_is_closed_in_the_middle_leaves_a_run_to_go_on_with(store):
    ready = threading.Event()

    @step
    async def waits() -> int:
        calls.append("waits")
        ready.set()
        await asyncio.sleep(10 if len(calls) == 1 else 0)
        return 1

    @flow
    async def work() -> int:
        return await waits()

    loop = asyncio.new_event_loop()
    task = loop.create_task(work.run("r"))
    while not ready.is_set():
        loop.run_until_complete(asyncio.sleep(0.01))
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        loop.run_until_complete(task)
    loop.close()
    assert asyncio.run(work.run("r")) == 1


def test_a_task_that_a_step_itself_cancelled_is_a_failure_of_the_step(holdfast_store):
    """Nobody cancelled the run: `task.cancelling()` of the awaiting task is 0."""

    @step
    async def cancels() -> None:
        task = asyncio.ensure_future(asyncio.sleep(10))
        task.cancel()
        await task

    @flow
    async def work() -> str:
        try:
            await cancels()
        except StepFailed as failed:
            return failed.type_name
        return ""

    try:
        found = asyncio.run(work.run("r"))
    except asyncio.CancelledError:
        found = "the run was given back"
    assert found == "CancelledError"
