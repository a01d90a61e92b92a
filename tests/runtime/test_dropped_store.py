"""A store that nobody refers to any more is collected, although nobody closed it."""

import asyncio
import gc
import threading
import time
import weakref

import pytest

import holdfast
from holdfast import flow, step

PATIENCE_S = 30.0


@step(name="dropped_double")
def double(number: int) -> int:
    return 2 * number


@step(name="dropped_triple")
async def triple(number: int) -> int:
    return 3 * number


@flow(name="dropped_doubled")
def doubled(number: int) -> int:
    return double(number)


@flow(name="dropped_tripled")
async def tripled(number: int) -> int:
    return await triple(number)


def run(store: holdfast.types.Store) -> None:
    assert doubled.with_options(store=store).run("r", 2) == 4


def run_async(store: holdfast.types.Store) -> None:
    assert asyncio.run(tripled.with_options(store=store).aio.run("r", 2)) == 6


def run_in_a_worker(store: holdfast.types.Store) -> None:
    with store.worker(flows=[doubled]):
        assert doubled.with_options(store=store).submit("r", 2).result() == 4


@pytest.mark.parametrize("execute", [run, run_async, run_in_a_worker])
def test_a_store_that_is_dropped_is_collected(execute):
    collected = threading.Event()
    store = holdfast.open("memory:", default=False)
    weakref.finalize(store._engine, collected.set)
    before = threading.enumerate()
    execute(store)
    del store
    deadline_s = time.monotonic() + PATIENCE_S
    while not collected.is_set():
        assert time.monotonic() < deadline_s
        gc.collect()
        collected.wait(0.01)
    for ours in threading.enumerate():
        if ours not in before and ours.name in ("holdfast-heartbeat", "holdfast-committer"):
            ours.join(PATIENCE_S)
            assert not ours.is_alive()
