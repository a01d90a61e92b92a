"""Many runs wait, and many timers are due in one second: each fires once, and waiting costs nothing.

`python -m benchmarks.waiting` measures CPU and memory with 20,000 runs; here facts, with fewer.
"""

from __future__ import annotations

import threading
from collections import Counter

import holdfast
from holdfast import ask, flow, sleep, step
from tests.crash.harness import BOTH_STORES, World, wait_for

RUNS = 100
AHEAD_US = 1_500_000


@step
def counted_step(number: int) -> int:
    return number


@flow
def counted_sleeper(number: int, until_us: int) -> int:
    left_us = until_us - int(holdfast.context.now().timestamp() * 1_000_000)
    sleep(max(0.001, left_us / 1_000_000))
    return counted_step(number)


@flow
def counted_asker(number: int) -> int:
    return ask("Go on?", name="go", type=int)


def ended(store: holdfast.types.Store) -> Counter[str]:
    return Counter(str(run.status) for run in store.runs(limit=4 * RUNS))


@BOTH_STORES
def test_timers_of_one_moment_fire_once_each(world: World) -> None:
    """Two workers on one store find the same runs due at the same moment."""
    with world.store() as store, world.store() as other:
        due_us = store._backend.now_us() + AHEAD_US
        for number in range(RUNS):
            counted_sleeper.with_options(store=store).submit(f"s-{number}", number, due_us)
        with store.worker(flows=[counted_sleeper]), other.worker(flows=[counted_sleeper]):
            wait_for(lambda: ended(store)["completed"] == RUNS, "all timers have fired")
        for number in range(RUNS):
            kinds = Counter(entry.kind for entry in store.history(f"s-{number}"))
            assert kinds["timer_fired"] == 1
            assert kinds["step_completed"] == 1


@BOTH_STORES
def test_runs_that_wait_hold_nothing_in_a_worker(world: World) -> None:
    """No thread (but those of its places), no owner and no lease; an answer takes up the one it is for."""
    with world.store() as store:
        for number in range(RUNS):
            counted_asker.with_options(store=store).submit(f"a-{number}", number)
        with store.worker(flows=[counted_asker], concurrency=10):
            wait_for(lambda: ended(store)["waiting"] == RUNS, "all runs wait")
            wait_for(lambda: not store._engine.executing(), "none of them is loaded")
            rows = [store._backend.get(f"a-{number}") for number in range(RUNS)]
            assert [row.owner for row in rows if row is not None] == [None] * RUNS
            assert threading.active_count() < RUNS // 2
            store.answer("a-7", "go", 7, actor="ana")
            wait_for(lambda: ended(store)["completed"] == 1, "the one that was answered")
        assert store.get("a-7").result == 7
        assert ended(store)["waiting"] == RUNS - 1
