"""Two answers against each other, a signal against its time-out: a thousand seeds each, and one
truthful order each time."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

import pytest

from holdfast import aio, flow, testing
from holdfast.errors import AnswerConflict, WaitTimedOut
from holdfast.testing import FakeClock, PrivateStore
from tests import sweeps

SEEDS = {"memory:": sweeps.size(250, 1000), "sqlite:": sweeps.size(50, 100)}
MANY = pytest.mark.parametrize(("url", "seeds"), SEEDS.items(), ids=SEEDS)
TOGETHER = 50


@flow(name="race-ask")
async def asks() -> str:
    return await aio.ask("Which?", name="which", type=str)


@flow(name="race-wait")
async def waits() -> list[Any]:
    try:
        return ["in time", await aio.wait_for_signal("go", timeout=1)]
    except WaitTimedOut:
        return ["too late", await aio.wait_for_signal("go")]


def pause(chance: random.Random) -> None:
    """Give way, by seed: not at all, to another thread, or for a moment."""
    kind = chance.random()
    if kind > 0.3:
        time.sleep(0 if kind < 0.9 else chance.random() / 2000)


def together(*works: Any) -> None:
    """Do several things at one time; what one of them raises is raised here."""
    failed: list[BaseException] = []

    def guarded(work: Any) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


@pytest.mark.sweep
@MANY
def test_of_two_answers_one_wins_and_the_other_hears_of_it(url: str, seeds: int) -> None:
    """Fault 75. Answers come before the question, while it is asked, and after."""
    told: dict[str, dict[str, str]] = {"ana": {}, "bob": {}}
    runs = [f"r{seed}" for seed in range(seeds)]
    with testing.store(url=url) as store:
        for run_id in runs:
            asks.submit(run_id)

        def answers(actor: str) -> None:
            for seed, run_id in enumerate(runs):
                pause(random.Random(f"{actor} {seed}"))
                try:
                    store.answer(run_id, "which", actor, actor=actor)
                    told[actor][run_id] = actor
                except AnswerConflict as conflict:
                    told[actor][run_id] = conflict.actor

        with store.worker(flows=[asks], concurrency=200):
            together(lambda: answers("ana"), lambda: answers("bob"))
            results = {run_id: store.handle(run_id).result(timeout=60) for run_id in runs}

        assert told["ana"] == told["bob"] == results
        if seeds >= SEEDS["memory:"]:
            assert len(set(results.values())) == 2, "one of them always came first: no race"
        assert store._backend.questions() == []


@pytest.mark.sweep
@MANY
def test_a_signal_comes_in_time_or_is_there_for_the_next_wait(url: str, seeds: int) -> None:
    """Fault 72. Never both, never lost, taken once."""
    results: dict[str, list[Any]] = {}
    with testing.store(clock=FakeClock(), url=url) as store:
        for first in range(0, seeds, TOGETHER):
            results |= race(store, [f"r{seed}" for seed in range(first, first + TOGETHER)])

        assert all(result[1] == run_id for run_id, result in results.items())
        seen = Counter(result[0] for result in results.values())
        if seeds >= SEEDS["memory:"]:
            assert min(seen["in time"], seen["too late"]) > 0, "one always came first: no race"
        for run_id in runs_of_both(results):
            check_order(store, run_id, results[run_id][0])


def race(store: PrivateStore, runs: list[str]) -> dict[str, list[Any]]:
    """Let the time of some runs pass while somebody sends each its signal."""
    handles = {run_id: waits.start(run_id) for run_id in runs}
    store.clock.wait_until_sleeping(len(runs))

    def time_passes() -> None:
        chance = random.Random(f"time {runs[0]}")
        for _ in range(chance.randrange(20)):
            pause(chance)
        store.clock.advance(1)

    def somebody_signals() -> None:
        for run_id in runs:
            pause(random.Random(run_id))
            store.signal(run_id, "go", run_id)

    together(time_passes, somebody_signals)
    return {run_id: handle.result(timeout=60) for run_id, handle in handles.items()}


def runs_of_both(results: dict[str, list[Any]]) -> list[str]:
    """Return the first runs that ended the one way, and the other."""
    return [
        run_id
        for way in ("in time", "too late")
        for run_id in [run_id for run_id, result in results.items() if result[0] == way][:50]
    ]


def check_order(store: PrivateStore, run_id: str, way: str) -> None:
    kinds = [entry.kind for entry in store.history(run_id)]
    assert kinds.count("signal_received") == 1
    assert kinds.count("wait_timed_out") == (way == "too late")
    assert [it.status for it in store.get(run_id).signals] == ["received"]
