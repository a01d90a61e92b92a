"""The private store of a test: default while open, strict, waiting for facts; fakes and overrides."""

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from holdfast import Retry, aio, effect, flow, resource, sleep, step, testing
from holdfast.errors import RunHeld, UsageError
from holdfast.testing import FakeClock, PrivateStore


@step(name="kit-double")
def double(number: int) -> int:
    return number * 2


@effect(name="kit-send", on_doubt="hold")
def send(text: str) -> str:
    raise ConnectionError(text)


@flow(name="kit-doubling")
def doubling(number: int) -> int:
    return double(double(number))


@flow(name="kit-sending")
def sending(text: str) -> str:
    return send(text)


@pytest.mark.parametrize("url", [None, "memory:", "sqlite:"])
def test_it_is_the_default_while_it_is_open(url):
    with testing.store(url=url) as store:
        assert doubling.run("r", 3) == 12
        assert [step.status for step in store.get("r").steps] == ["completed", "completed"]
        assert os.environ["HOLDFAST_STRICT"] == "1"
    assert "HOLDFAST_STRICT" not in os.environ
    with testing.store() as other, pytest.raises(Exception, match="no run"):
        other.get("r")


def test_stores_nest_and_the_outer_one_comes_back():
    with testing.store() as outer:
        with testing.store() as inner:
            doubling.run("inside", 1)
            assert inner.runs()
        doubling.run("outside", 1)
        assert [run.run_id for run in outer.runs()] == ["outside"]


def test_strict_mode_is_put_back_as_it_was(monkeypatch):
    monkeypatch.setenv("HOLDFAST_STRICT", "0")
    with testing.store():
        assert os.environ["HOLDFAST_STRICT"] == "1"
    assert os.environ["HOLDFAST_STRICT"] == "0"


def test_a_step_in_a_foreign_thread_is_an_error_in_strict_mode():
    errors: list[BaseException] = []

    @flow(name="kit-pool")
    def pooled() -> None:
        def work() -> None:
            try:
                double(1)
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()

    with testing.store():
        pooled.run("r")
    assert isinstance(errors[0], UsageError)


def test_until_waits_for_a_status_and_for_a_step():
    gate = threading.Event()

    @step(name="kit-gated")
    def gated() -> int:
        assert gate.wait(10)
        return 5

    @flow(name="kit-gates")
    def gates() -> int:
        return double(gated())

    with testing.store() as store:
        gates.start("r")
        store.wait_until("r", status="running")
        gate.set()
        assert (
            store.wait_until("r", status=("completed", "failed"), done="kit-double").result() == 10
        )


def test_until_says_what_is_the_case_instead():
    with testing.store() as store:
        with pytest.raises(TimeoutError, match="there is no such run"):
            store.wait_until("r", status="held", timeout_s=0.01)
        doubling.run("r", 1)
        with pytest.raises(TimeoutError, match=r"status='held'.*it is completed; kit-double"):
            store.wait_until("r", status="held", timeout_s=0.01)
        with pytest.raises(TimeoutError, match="waiting='timer'"):
            store.wait_until("r", waiting="timer", timeout_s=0.01)
        with pytest.raises(ValueError):
            store.wait_until("r", status="hold", timeout_s=0.01)
        assert store.wait_until("r", waiting=False).run_id == "r"


def test_until_does_not_take_an_old_wait_for_the_present_one(monkeypatch):
    @flow(name="kit-sleeper")
    def sleeper() -> int:
        sleep("1h")
        return double(1)

    with testing.store(clock=FakeClock(), url="sqlite:") as store:
        handle = sleeper.start("r")
        store.wait_until("r", waiting="timer")
        get, reads = store._backend.get, iter(range(1_000_000))

        def ends_before_the_second_read(run_id):
            if next(reads) == 1:
                monkeypatch.undo()
                store.clock.advance("2h")
                assert handle.result(timeout=20) == 2
            return get(run_id)

        monkeypatch.setattr(store._backend, "get", ends_before_the_second_read)
        with pytest.raises(TimeoutError, match="it is completed"):
            store.wait_until("r", waiting=True, done="kit-double", timeout_s=0.01)


def test_a_held_run_is_a_fact():
    with testing.store() as store:
        with pytest.raises(RunHeld):
            sending.run("r", "x")
        assert store.wait_until("r", status="held").status() == "held"


def test_a_retry_waits_on_the_clock_of_the_test():
    clock = FakeClock()
    tries: list[int] = []

    @step(name="kit-flaky", retry=Retry(attempts=3, initial_wait_s=60, max_wait_s=600, jitter=0))
    def flaky() -> str:
        tries.append(clock.now_us())
        if len(tries) < 3:
            raise ConnectionError
        return "there"

    @flow(name="kit-patient")
    def patient() -> str:
        return flaky()

    with testing.store(clock) as store:
        assert store.clock is clock
        handle = patient.start("r")
        assert clock.advance_to_next() == 60
        clock.wait_until_sleeping()
        assert clock.advance_to_next() == 120
        assert handle.result(timeout=10) == "there"
    assert [at - tries[0] for at in tries] == [0, 60_000_000, 180_000_000]


def test_a_run_that_waits_at_a_worker_is_woken_as_the_clock_says():
    clock = FakeClock()

    @flow(name="kit-reminder")
    def reminder() -> str:
        sleep("2d")
        return "reminded"

    with testing.store(clock=clock) as store, store.worker(flows=[reminder]):
        handle = reminder.submit("r")
        store.wait_until("r", status="waiting", waiting=True)
        advice = r"store\.wait_until\(run_id, waiting=True\).*advance\("
        with pytest.raises(TimeoutError, match=advice):
            clock.advance_to_next(timeout_s=0.01)
        clock.advance("2d")
        assert handle.result(timeout=60) == "reminded"


def test_an_async_retry_waits_on_it_too():
    clock = FakeClock(auto=True)

    @step(
        name="kit-aflaky", retry=Retry(attempts=2, initial_wait_s=3600, max_wait_s=7200, jitter=0)
    )
    async def aflaky() -> str:
        if clock.now_us() < before + 3_600_000_000:
            raise ConnectionError
        return "there"

    @flow(name="kit-apatient")
    async def apatient() -> list[str]:
        return [*await aio.gather(aflaky())]

    before = clock.now_us()
    with testing.store(clock):
        assert asyncio.run(apatient.run("r")) == ["there"]


def test_without_a_clock_there_is_none_to_move():
    with testing.store() as store, pytest.raises(AttributeError, match="clock="):
        assert store.clock


def test_a_resource_is_overridden_for_a_while():
    class Client:
        def ask(self) -> str:
            return "real"

    class FakeClient(Client):
        def ask(self) -> str:
            return "fake"

    built: list[int] = []

    def make() -> Client:
        built.append(1)
        return Client()

    @step(name="kit-think")
    def think(client: Client = resource(make)) -> str:
        return client.ask()

    @flow(name="kit-thinks")
    def thinks() -> str:
        return think()

    with testing.store():
        with testing.override(make, FakeClient()):
            assert thinks.run("fake") == "fake"
            with testing.override(make, Client()):
                assert thinks.run("inner") == "real"
            assert thinks.run("fake-again") == "fake"
        assert not built
        assert thinks.run("real") == "real"
    assert built == [1]


def test_a_step_is_faked_by_a_value_or_a_function():
    with testing.store():
        with double.fake(7):
            assert doubling.run("value", 1) == 7
        with double.fake(lambda number: number + 1):
            assert doubling.run("function", 1) == 3
        assert doubling.run("real", 1) == 4
        assert doubling.run("value", 1) == 7


def test_an_effect_and_an_async_step_are_faked():
    @step(name="kit-afetch")
    async def fetch(url: str) -> str:
        raise AssertionError(url)

    @flow(name="kit-afetches")
    async def fetches(url: str) -> str:
        return await fetch(url)

    async def page(url: str) -> str:
        return f"page of {url}"

    with testing.store():
        with send.fake("sent"):
            assert sending.run("r", "x") == "sent"
        with fetch.fake("page"):
            assert asyncio.run(fetches.run("a", "u")) == "page"
        with fetch.fake(page):
            assert asyncio.run(fetches.run("b", "u")) == "page of u"


def test_a_fake_is_gone_after_an_error():
    with pytest.raises(KeyError), double.fake(1):
        raise KeyError
    assert double(4) == 8


PLUGGED = """
from holdfast import flow, step

@step
def double(n: int) -> int:
    return 2 * n

@flow
def doubling(n: int) -> int:
    return double(n)

def test_with_store(holdfast_store):
    assert doubling.run("r", 2) == 4
    assert holdfast_store.url == "memory:"

def test_with_clock(holdfast_store, holdfast_clock):
    assert holdfast_store.clock is holdfast_clock

def test_clean(holdfast_store):
    assert holdfast_store.runs() == []
"""


def test_the_fixtures_of_the_plugin(tmp_path):
    (tmp_path / "test_plugged.py").write_text(PLUGGED)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_the_plugin_loads_nothing_of_ours_until_it_is_used():
    script = (
        "import sys\n"
        "import holdfast.testing.pytest_plugin\n"
        "heavy = {'asyncio', 'apsw', 'holdfast.testing.stores', 'holdfast.testing.clock'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"


def test_every_public_name_is_there():
    assert isinstance(PrivateStore, type)
    assert all(getattr(testing, name) is not None for name in testing.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        assert testing.nothing
