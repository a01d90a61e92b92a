"""Streams through recorded calls: live at first, replayed later, nothing kept of half of one."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

import pytest

from holdfast import flow, testing
from holdfast.adapters import as_step, step_key
from holdfast.errors import StepFailed
from holdfast.integrations._relay import Gone, arelay, relay

asked: list[str] = []


@pytest.fixture(autouse=True)
def _nothing_asked() -> None:
    asked.clear()


def words(put: Any) -> list[str]:
    asked.append("words")
    for word in ("one", "two", "three"):
        put(word)
    return ["one", "two", "three"]


async def awords(put: Any) -> list[str]:
    asked.append("awords")
    for word in ("one", "two", "three"):
        put(word)
        await asyncio.sleep(0)
    return ["one", "two", "three"]


def stream(put: Any, body: Any = words) -> Any:
    with step_key("s"):
        return as_step(body, name="stream", unrecorded=("put",))(put)


@flow(name="rl-sync")
def in_sync() -> list[str]:
    return list(relay(stream))


@flow(name="rl-async")
async def in_async() -> list[str]:
    return [it async for it in arelay(lambda put: stream(put, awords))]


def test_a_stream_is_asked_for_once() -> None:
    with testing.store():
        for _ in range(2):
            assert in_sync.run("r") == ["one", "two", "three"]
            assert asyncio.run(in_async.run("a")) == ["one", "two", "three"]
    assert asked == ["words", "awords"]


@pytest.mark.parametrize("work", [in_sync, in_async], ids=lambda it: it.name)
def test_killed_anywhere_it_is_whole(work: Any) -> None:
    report = testing.crash_matrix(work)
    assert report.result == ["one", "two", "three"]


def test_each_item_is_there_before_the_next_is_made() -> None:
    seen = threading.Semaphore(0)

    def slow(put: Any) -> list[str]:
        for word in ("one", "two", "three"):
            put(word)
            assert seen.acquire(timeout=20)
        return ["one", "two", "three"]

    @flow(name="rl-live")
    def live() -> list[str]:
        got = []
        for item in relay(lambda put: stream(put, slow)):
            got.append(item)
            seen.release()
        return got

    with testing.store():
        assert live.run("r") == ["one", "two", "three"]


def test_who_goes_away_leaves_no_record() -> None:
    over = threading.Event()
    stopped = threading.Event()

    def endless(put: Any) -> list[str]:
        try:
            while not over.wait(0.001):
                put("again")
        except Gone:
            stopped.set()
            raise
        return []

    @flow(name="rl-gone")
    def leaves() -> str:
        items = relay(lambda put: stream(put, endless))
        first = next(items)
        items.close()
        assert stopped.wait(20)
        return first

    with testing.store() as store:
        assert leaves.run("r") == "again"
        assert [it.status for it in store.get("r").steps] in (["cancelled"], [])


def test_what_it_raises_is_raised() -> None:
    def broken(put: Any) -> list[str]:
        put("one")
        raise ConnectionError("cut")

    @flow(name="rl-broken")
    def breaks() -> list[str]:
        got: list[str] = []
        try:
            got.extend(relay(lambda put: stream(put, broken)))
        except StepFailed as error:
            got.append(error.type_name)
        return got

    with testing.store():
        assert breaks.run("r") == ["one", "ConnectionError"]


@pytest.mark.parametrize("linger_s", [0.0, 20.0])
def test_who_goes_away_just_before_the_end_is_waited_for(linger_s: float) -> None:
    left = threading.Event()

    def ends_later(put: Any) -> list[str]:
        put("one")
        assert left.wait(20)
        put("two")
        return ["one", "two"]

    @flow(name=f"rl-linger-{linger_s}")
    def leaves() -> str:
        items = relay(lambda put: stream(put, ends_later), linger_s=linger_s)
        first = next(items)
        if linger_s:
            left.set()
            items.close()
        else:
            items.close()
            left.set()
        return first

    with testing.store() as store:
        assert leaves.run("r") == "one"
        done = [it.key for it in store.get("r").steps if it.status == "completed"]
        assert done == (["stream:s"] if linger_s else [])


def test_who_goes_away_just_before_the_end_is_awaited() -> None:
    async def ends_later(put: Any) -> list[str]:
        put("one")
        await asyncio.sleep(0.01)
        return ["one", "two"]

    @flow(name="rl-alinger")
    async def leaves() -> str:
        items = arelay(lambda put: stream(put, ends_later), linger_s=20)
        first = await anext(items)
        await items.aclose()
        return first

    with testing.store() as store:
        assert asyncio.run(leaves.run("r")) == "one"
        assert [it.key for it in store.get("r").steps if it.status == "completed"] == ["stream:s"]


def test_a_call_that_awaits_its_puts_reads_no_further_than_its_consumer() -> None:
    made: list[int] = []

    async def numbers(put: Any) -> list[int]:
        for number in range(3):
            made.append(number)
            await put(number)
        return made

    async def read() -> None:
        items = arelay(numbers)
        for number in range(3):
            assert await anext(items) == number
            await asyncio.sleep(0)
            assert made == list(range(number + 1))
        assert [it async for it in items] == []

    asyncio.run(read())


def test_who_leaves_lets_the_provider_tidy_up() -> None:
    """A second cancellation reaches the clean-up, as it would without a relay."""
    ended: list[str] = []

    async def provider() -> Any:
        try:
            yield "one"
            yield "two"
        finally:
            try:
                await may_tidy.wait()
                ended.append("tidied")
            except asyncio.CancelledError:
                ended.append("cut")
                raise

    async def call(put: Any) -> list[str]:
        async with contextlib.aclosing(provider()) as items:
            async for item in items:
                await put(item)
        return []

    async def leave(times: int) -> None:
        seen = asyncio.Event()

        async def read() -> None:
            async with contextlib.aclosing(arelay(call)) as items:
                await anext(items)
                seen.set()
                await asyncio.Event().wait()

        reading = asyncio.create_task(read())
        await seen.wait()
        for _ in range(times):
            reading.cancel()
            for _turn in range(5):
                await asyncio.sleep(0)
        may_tidy.set()
        await asyncio.wait([reading])
        assert reading.cancelled()

    for times, how in ((1, "tidied"), (2, "cut")):
        may_tidy = asyncio.Event()
        asyncio.run(leave(times))
        assert ended.pop() == how
