"""A worker takes what is due, executes it, and gives back what it cannot end."""

from __future__ import annotations

import asyncio

from holdfast import flow, step, testing


@step
def double(n: int) -> int:
    return 2 * n


@flow
def doubled(n: int) -> int:
    return double(n)


@step
async def tripled_step(n: int) -> int:
    await asyncio.sleep(0)
    return 3 * n


@flow
async def tripled(n: int) -> int:
    return await tripled_step(n)


def test_what_is_submitted_is_executed(store: testing.PrivateStore):
    with store.worker(flows=[doubled, tripled], concurrency=3) as worker:
        handles = [doubled.submit(f"d{n}", n) for n in range(10)]
        handles += [tripled.submit(f"t{n}", n) for n in range(10)]
        results = [handle.result(10) for handle in handles]
    assert results == [2 * n for n in range(10)] + [3 * n for n in range(10)]
    assert worker.taken == 20
    assert worker.working == 0


def test_async_flows_run_in_the_loop_of_the_caller(store: testing.PrivateStore):
    loops: list[asyncio.AbstractEventLoop] = []

    @flow(name="where am i")
    async def where() -> None:
        loops.append(asyncio.get_running_loop())

    async def app() -> asyncio.AbstractEventLoop:
        async with store.worker(flows=[where]):
            handle = await where.aio.submit("w")
            await asyncio.to_thread(handle.result, 10)
        return asyncio.get_running_loop()

    assert loops == [asyncio.run(app())]
