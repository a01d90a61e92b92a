"""Handles in an event loop: nothing blocks it, and what would is refused with what to write."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

import holdfast
from holdfast import emit, flow, step
from holdfast.errors import RunFailed, UsageError

PATIENCE_S = 30


@step(name="awaited_tell")
def tell(n: int) -> int:
    emit(n)
    return n * 2


@flow(name="awaited_told")
def told(n: int) -> int:
    return tell(n)


@flow(name="awaited_fails")
def fails() -> None:
    raise ValueError("no")


@pytest.fixture
def store() -> Iterator[holdfast.types.Store]:
    with holdfast.open("memory:") as opened:
        yield opened


def test_a_blocking_call_in_an_event_loop_is_refused(store: holdfast.types.Store) -> None:
    async def main() -> None:
        handle = told.submit("r", 1)
        with pytest.raises(UsageError, match=r"await handle\.aio\.result"):
            handle.result()
        with pytest.raises(UsageError, match=r"handle\.aio\.stream"):
            handle.stream()
        assert await asyncio.to_thread(store.get, "r")

    asyncio.run(main())


def test_the_loop_goes_on_while_a_result_is_awaited(store: holdfast.types.Store) -> None:
    async def main() -> None:
        waits = [
            asyncio.create_task(told.submit(f"r{n}", n).aio.result(PATIENCE_S)) for n in range(50)
        ]
        await asyncio.sleep(0)
        assert not any(wait.done() for wait in waits)
        async with store.worker(flows=[told]):
            assert await asyncio.gather(*waits) == [n * 2 for n in range(50)]

    asyncio.run(main())


def test_what_an_awaited_handle_says(store: holdfast.types.Store) -> None:
    async def main() -> None:
        handle = await told.aio.start("r", 4)
        assert handle.aio.run_id == "r"
        assert await handle.aio.result(timeout=PATIENCE_S) == 8
        assert await handle.aio.status() == "completed"
        assert [one.value async for one in handle.aio.stream()] == [4]
        waits = await told.aio.submit("waits", 1)
        with pytest.raises(TimeoutError, match="is still queued"):
            await waits.aio.result(timeout=0.01)
        with pytest.raises(RunFailed, match="no"):
            await (await fails.aio.start("f")).aio.result(PATIENCE_S)

    asyncio.run(main())


@flow(name="awaited_fails_async")
async def fails_async() -> None:
    raise ValueError("no")


@pytest.mark.parametrize("work", [fails, fails_async], ids=["sync", "async"])
def test_a_failure_has_its_cause_from_a_handle_as_from_run(
    store: holdfast.types.Store, work
) -> None:
    async def awaited(handle: holdfast.types.Handle[None]) -> None:
        await asyncio.wait_for(handle.aio.result(), PATIENCE_S)

    handle = work.start("r")
    for ask in (handle.result, lambda: asyncio.run(awaited(handle)), handle.result):
        with pytest.raises(RunFailed, match="ValueError: no") as failed:
            ask()
        assert isinstance(failed.value.__cause__, ValueError)
        assert failed.value.__cause__.__traceback__ is not None


def test_a_run_that_failed_again_elsewhere_has_not_the_cause_of_before(
    store: holdfast.types.Store,
) -> None:
    why = ["first", "second"]

    @flow(name="awaited_fails_twice")
    def fails_twice() -> None:
        raise ValueError(why.pop(0))

    handle = fails_twice.start("r")
    with pytest.raises(RunFailed, match="first"):
        handle.result()
    with pytest.raises(RunFailed, match="second"):
        fails_twice.run("r")
    with pytest.raises(RunFailed, match="second") as failed:
        handle.result()
    assert failed.value.__cause__ is None
