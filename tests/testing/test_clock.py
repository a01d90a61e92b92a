"""The fake clock: it moves when it is told, and wakes those whose time has come."""

import asyncio
import datetime as dt
import threading

import pytest

from holdfast.errors import UsageError
from holdfast.testing import FakeClock


def sleeping(clock: FakeClock, seconds: float) -> tuple[threading.Thread, list[bool]]:
    woken: list[bool] = []
    event = threading.Event()
    thread = threading.Thread(target=lambda: woken.append(clock.wait(event, seconds)), daemon=True)
    thread.start()
    return thread, woken


def test_time_stands_still_until_it_is_moved():
    clock = FakeClock(dt.datetime(2026, 3, 1, tzinfo=dt.UTC))
    assert clock.now == dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    clock.advance(90)
    assert clock.now == dt.datetime(2026, 3, 1, 0, 1, 30, tzinfo=dt.UTC)
    assert clock() == clock.now_us() == int(clock.now.timestamp() * 1e6)
    assert "2026-03-01" in repr(clock)


@pytest.mark.parametrize("duration", ["1h30m", 5400, 5400.0, dt.timedelta(minutes=90)])
def test_it_takes_durations_as_all_other_calls_do(duration):
    clock = FakeClock()
    before = clock.now
    clock.advance(duration)
    assert clock.now - before == dt.timedelta(minutes=90)
    with pytest.raises(UsageError, match="advance"):
        clock.advance("soon")
    with pytest.raises(UsageError, match="goes forward"):
        clock.advance(dt.timedelta(seconds=-1))


def test_it_goes_forward_unless_a_fault_is_asked_for():
    clock = FakeClock()
    before = clock()
    with pytest.raises(UsageError, match="forward"):
        clock.advance(-1)
    clock.jump(-2)
    assert clock() == before - 2_000_000


def test_a_waiting_thread_is_woken_when_its_time_has_come():
    clock = FakeClock()
    thread, woken = sleeping(clock, 10)
    clock.wait_until_sleeping()
    clock.advance(9)
    assert clock.sleepers == 1
    clock.advance(1)
    thread.join(5)
    assert woken == [False]
    assert clock.sleepers == 0


def test_an_event_ends_the_wait():
    clock = FakeClock()
    event = threading.Event()
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(clock.wait(event, 1e6)))
    thread.start()
    clock.wait_until_sleeping()
    event.set()
    thread.join(5)
    assert woken == [True]


def test_advance_to_next_goes_to_the_earliest_sleeper():
    clock = FakeClock()
    late, _ = sleeping(clock, 30)
    early, _ = sleeping(clock, 7)
    clock.wait_until_sleeping(2)
    assert clock.advance_to_next() == 7
    early.join(5)
    assert not early.is_alive()
    assert late.is_alive()
    assert clock.advance_to_next() == 23
    late.join(5)


def test_nobody_sleeps():
    with pytest.raises(
        TimeoutError, match="0 of 1 sleep .* a run that waits at a worker is unloaded"
    ):
        FakeClock().advance_to_next(timeout_s=0.01)


def test_tasks_are_woken_too():
    clock = FakeClock()
    order: list[str] = []

    async def nap(name: str, seconds: float) -> None:
        await clock.wait_async(seconds)
        order.append(name)

    async def main() -> None:
        naps = [asyncio.ensure_future(nap("late", 5)), asyncio.ensure_future(nap("early", 1))]
        while clock.sleepers < 2:
            await asyncio.sleep(0)
        clock.advance(0.5)
        assert not order
        assert await asyncio.to_thread(clock.advance_to_next) == 0.5
        await naps[1]
        clock.advance(60)
        await naps[0]

    asyncio.run(main())
    assert order == ["early", "late"]
    assert clock.sleepers == 0


def test_an_automatic_clock_is_moved_by_whoever_waits():
    clock = FakeClock(auto=True)
    before = clock()
    assert clock.wait(threading.Event(), 3600) is False
    asyncio.run(clock.wait_async(5))
    assert clock() - before == 3_605_000_000
    stopped = threading.Event()
    stopped.set()
    assert clock.wait(stopped, 3600) is True
    assert clock() - before == 3_605_000_000
