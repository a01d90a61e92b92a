"""Sleeping: the end is worked out once, and no clock, crash or restart changes it."""

from __future__ import annotations

import datetime as dt
import functools
from typing import Any

import pytest

from holdfast import Retry, aio, each, flow, gather, sleep, step, testing
from holdfast.errors import UsageError
from holdfast.testing import FakeClock
from tests.runtime.facts import until

woken: list[Any] = []


def woke(times: int) -> bool:
    return len(woken) == times


@pytest.fixture(autouse=True)
def _nobody_woken() -> None:
    woken.clear()


@step(name="sl-wake")
def wake(text: str) -> str:
    woken.append(text)
    return text


@flow(name="sl-two-hours")
def two_hours() -> str:
    sleep("2h")
    return wake("after two hours")


@flow(name="sl-atwo-hours")
async def atwo_hours() -> str:
    await aio.sleep(dt.timedelta(hours=2))
    return await wake.aio("after two hours")


@flow(name="sl-until")
def until_new_year() -> str:
    sleep(dt.datetime(2027, 1, 1, tzinfo=dt.UTC))
    sleep(dt.datetime(2020, 1, 1, tzinfo=dt.UTC))
    return "2027"


@flow(name="sl-branches")
def branches() -> list[float]:
    def one(hours: float) -> float:
        sleep(hours * 3600)
        wake(f"{hours}")
        return hours

    return each(one, [3.0, 1.0, 2.0])


@flow(name="sl-second")
async def one_second(number: int) -> int:
    await aio.sleep(30)
    await wake.aio(str(number))
    return number


@step(name="sl-flaky", retry=Retry(attempts=3, initial_wait_s=3600, max_wait_s=3600, jitter=0))
def flaky() -> str:
    woken.append("attempt")
    if len(woken) < 3:
        raise ConnectionError("away")
    return "back"


@flow(name="sl-retrying")
def retrying() -> str:
    return flaky()


@flow(name="sl-mixed")
def mixed() -> list[str]:
    def naps() -> str:
        sleep("10m")
        return wake("nap")

    return list(gather(naps, lambda: flaky()))


STORES = pytest.mark.parametrize("url", ["memory:", "sqlite:"])


@STORES
@pytest.mark.parametrize("flow", [two_hours, atwo_hours], ids=["sync", "async"])
def test_two_hours_pass_in_a_moment(url: str, flow: Any) -> None:
    with testing.store(clock=FakeClock(), url=url) as store:
        handle = flow.start("r")
        store.wait_until("r", waiting="timer")

        assert store.clock.advance_to_next() == pytest.approx(7200)
        assert handle.result(timeout=20) == "after two hours"
        kinds = [entry.kind for entry in store.history("r") if entry.step == "sleep"]
        assert kinds == ["timer_set", "timer_fired"]


def test_until_a_moment_and_one_that_has_passed() -> None:
    with testing.store(clock=FakeClock(dt.datetime(2026, 12, 31, 23, tzinfo=dt.UTC))) as store:
        handle = until_new_year.start("r")
        store.wait_until("r", waiting="timer")
        assert store.clock.advance_to_next() == pytest.approx(3600)
        assert handle.result(timeout=20) == "2027"


@pytest.mark.parametrize("jump_s", [-3600, -86_400 * 400, 1800])
def test_a_clock_that_jumps_changes_nothing_but_the_moment(jump_s: float) -> None:
    """Faults 55 and 57: it fires once, and not before its time by the store's clock."""
    with testing.store(clock=FakeClock()) as store:
        handle = two_hours.start("r")
        store.wait_until("r", waiting="timer")
        store.clock.jump(jump_s)
        store.clock.advance(3600)
        assert store.get("r").status == "waiting"
        store.clock.advance(86_400 * 500)
        assert handle.result(timeout=20) == "after two hours"
        assert woken == ["after two hours"]


def test_a_jump_forward_may_end_it() -> None:
    with testing.store(clock=FakeClock()) as store:
        handle = two_hours.start("r")
        store.wait_until("r", waiting="timer")
        store.clock.jump(7201)
        assert handle.result(timeout=20) == "after two hours"


@STORES
def test_a_worker_unloads_sleepers_and_takes_them_up_when_it_is_time(url: str) -> None:
    with testing.store(clock=FakeClock(), url=url) as store:
        two_hours.submit("r")
        with store.worker(flows=[two_hours], concurrency=1):
            until(lambda: (row := store._backend.get("r")) and row.wake_us and row.owner is None)
            row = store._backend.get("r")
            assert row is not None
            assert row.wake_us is not None
            assert row.wake_us - store._backend.now_us() == pytest.approx(7200e6, rel=0.01)
            assert "sleeps until" in str(store.explain("r"))
            store.clock.advance(7200)
            assert store.handle("r").result(timeout=20) == "after two hours"


@STORES
def test_pauses_between_attempts_unload_too(url: str) -> None:
    with testing.store(clock=FakeClock(), url=url) as store:
        retrying.submit("r")
        with store.worker(flows=[retrying], concurrency=1):
            for attempt in (1, 2):
                until(functools.partial(woke, attempt))
                until(
                    lambda: (row := store._backend.get("r")) and row.wake_us and row.owner is None
                )
                store.clock.advance(3600)
            assert store.handle("r").result(timeout=20) == "back"
        assert store.get("r").steps[0].attempts == 3


def test_branches_sleep_each_for_itself() -> None:
    with testing.store(clock=FakeClock()) as store:
        handle = branches.start("r")
        store.clock.wait_until_sleeping(3)
        for _ in range(3):
            count = len(woken)
            store.clock.advance(3600)
            until(functools.partial(woke, count + 1))
        assert handle.result(timeout=20) == [3.0, 1.0, 2.0]
        assert woken == ["1.0", "2.0", "3.0"]


@STORES
def test_many_timers_of_one_second_fire_once_each(url: str) -> None:
    with testing.store(clock=FakeClock(), url=url) as store:
        for number in range(100):
            one_second.submit(f"r{number}", number)
        with store.worker(flows=[one_second], concurrency=100):
            until(lambda: len(store.runs(status="waiting", limit=1000)) == 100)
            store.clock.advance(30)
            until(lambda: len(store.runs(status="completed", limit=1000)) == 100)
        assert sorted(map(int, woken)) == list(range(100))
        fired = [e for n in range(100) for e in store.history(f"r{n}") if e.kind == "timer_fired"]
        assert len(fired) == 100


@pytest.mark.parametrize("flow", [two_hours, atwo_hours, mixed], ids=lambda it: it.name)
def test_killed_at_every_entry(flow: Any) -> None:
    report = testing.crash_matrix(flow, setup=woken.clear)
    assert report.points


def test_what_is_said_wrongly() -> None:
    with pytest.raises(UsageError, match="inside a flow"):
        sleep(1)
    with testing.store() as store:
        handle = _wrong.start("r")
        with pytest.raises(Exception, match="seconds, a timedelta"):
            handle.result(timeout=20)
        assert store.get("r").status == "failed"


@flow(name="sl-wrong")
def _wrong() -> None:
    sleep("a while")
