"""What users' code may do to a run: swallow what stops it, call from elsewhere, call too early."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import holdfast
from holdfast import Done, effect, flow, step
from holdfast.errors import RunFailed, RunHeld, StepFailed, UsageError
from tests.crash.harness import kinds

calls: Counter[str] = Counter()


@pytest.fixture(autouse=True)
def _count_anew() -> Iterator[None]:
    calls.clear()
    yield
    calls.clear()


@effect(name="user_code.charge")
def charge() -> str:
    calls["charge"] += 1
    raise TimeoutError("no answer")


@step(name="user_code.work")
def work(i: int) -> int:
    calls["work"] += 1
    return i * i


@step(name="user_code.work_async")
async def work_async(i: int) -> int:
    calls["work"] += 1
    return i * i


# --- swallowing what stops a run --------------------------------------------------------------


def test_except_exception_around_everything(store: holdfast.types.Store) -> None:
    @flow
    def careless() -> str:
        try:
            return charge()
        except Exception:
            return "swallowed"

    with pytest.raises(RunHeld) as held:
        careless.run("r")
    assert held.value.reason == "in_doubt"
    assert store.get("r").status == "held"
    store.settle("r", charge.name, Done("ch-1"), actor="ops")
    assert careless.run("r") == "ch-1"
    assert calls == {"charge": 1}


def test_except_base_exception_that_raises_again(store: holdfast.types.Store) -> None:
    cleaned: list[str] = []

    @flow
    def tidy() -> str:
        try:
            return charge()
        except BaseException:
            cleaned.append("cleaned")
            raise

    with pytest.raises(RunHeld) as held:
        tidy.run("r")
    assert held.value.reason == "in_doubt"
    assert cleaned == ["cleaned"]


def test_a_swallowed_unwinding_is_held_as_diverged(store: holdfast.types.Store) -> None:
    @flow
    def swallowing() -> str:
        try:
            return charge()
        except BaseException:
            return "swallowed"

    with pytest.raises(RunHeld) as held:
        swallowing.run("r")
    assert held.value.reason == "diverged"
    assert store.get("r").held_reason == "diverged"
    assert "run_completed" not in kinds(store.history("r"), runs=True)


def test_while_it_unwinds_every_call_raises_and_nothing_is_recorded(
    store: holdfast.types.Store,
) -> None:
    @flow
    def stubborn() -> list[int]:
        results: list[int] = []
        for i in range(5):
            try:
                charge()
            except BaseException:
                pass
            try:
                results.append(work(i))
            except BaseException:
                pass
        return results

    with pytest.raises(RunHeld):
        stubborn.run("r")
    assert calls == {"charge": 1}
    touched = {e.step for e in store.history("r") if e.step is not None}
    assert touched == {charge.name}


def test_a_finally_block_that_calls_a_step_while_it_unwinds(store: holdfast.types.Store) -> None:
    @flow
    def tidy() -> str:
        try:
            return charge()
        finally:
            work(1)

    with pytest.raises(RunHeld) as held:
        tidy.run("r")
    assert held.value.reason == "in_doubt"
    assert calls == {"charge": 1}


def test_swallowed_in_async_code_too(store: holdfast.types.Store) -> None:
    @effect
    async def charge_async() -> str:
        calls["charge"] += 1
        raise TimeoutError

    @flow
    async def swallowing() -> str:
        try:
            return await charge_async()
        except BaseException:
            return "swallowed"

    with pytest.raises(RunHeld) as held:
        asyncio.run(swallowing.run("r"))
    assert held.value.reason == "diverged"


def test_a_failed_step_is_an_exception_that_a_flow_may_handle(store: holdfast.types.Store) -> None:
    @step
    def failing() -> int:
        calls["failing"] += 1
        raise ValueError("no")

    @flow
    def handling() -> list[Any]:
        try:
            failing()
        except StepFailed as failed:
            return [failed.step, failed.type_name, failed.message, failed.attempts, work(3)]
        raise AssertionError

    expected = [failing.name, "ValueError", "no", 1, 9]
    assert handling.run("r") == expected
    assert handling.run("r") == expected
    assert calls == {"failing": 1, "work": 1}


# --- calls from threads and tasks that the run does not know ----------------------------------


def refused(run: Any) -> str:
    """Return the text of the UsageError that a run ended with, however it reached its caller."""
    with pytest.raises((UsageError, RunFailed)) as error:
        run()
    if isinstance(error.value, RunFailed):
        assert error.value.type_name.endswith("UsageError"), error.value
    return str(error.value)


def test_a_step_from_a_pool_in_strict_mode(
    store: holdfast.types.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STRICT", "1")

    @flow
    def pooled() -> list[int]:
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(work, range(3)))

    text = refused(lambda: pooled.run("r"))
    assert "each" in text
    assert "gather" in text
    assert calls == {}


def test_a_step_from_a_pool_with_the_context_copied(store: holdfast.types.Store) -> None:
    """The context says that a run is there; the run does not know the thread."""

    @flow
    def pooled() -> int:
        context = contextvars.copy_context()
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(context.run, work, 3).result()

    assert "gather" in refused(lambda: pooled.run("r"))
    assert calls == {}


def test_a_step_from_an_unknown_task(store: holdfast.types.Store) -> None:
    async def aside() -> int:
        return await work_async(1) + await work_async(2)

    @flow
    async def with_task() -> int:
        return await asyncio.create_task(aside())

    assert "gather" in refused(lambda: asyncio.run(with_task.run("r")))
    assert calls == {}


def test_a_step_from_to_thread(store: holdfast.types.Store) -> None:
    @flow
    async def with_thread() -> int:
        return await asyncio.to_thread(work, 3)

    refused(lambda: asyncio.run(with_thread.run("r")))
    assert calls == {}


def test_a_step_key_makes_it_known(store: holdfast.types.Store) -> None:
    async def aside(i: int) -> int:
        return await work_async.with_options(step_key=f"call-{i}")(i)

    @flow
    async def with_tasks() -> int:
        return sum(await asyncio.gather(*(asyncio.create_task(aside(i)) for i in range(3))))

    assert asyncio.run(with_tasks.run("r")) == 5
    assert asyncio.run(with_tasks.run("r")) == 5
    assert calls == {"work": 3}


def test_plain_asyncio_gather_of_steps_replays(store: holdfast.types.Store) -> None:
    stop = True

    @flow
    async def gathered() -> list[int]:
        results = await asyncio.gather(*(work_async(i) for i in range(5)))
        if stop:
            raise KeyboardInterrupt
        return results

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(gathered.run("r"))
    stop = False
    assert asyncio.run(gathered.run("r")) == [0, 1, 4, 9, 16]
    assert calls == {"work": 5}


def test_a_thread_of_another_kind_outside_any_run_is_not_disturbed(
    store: holdfast.types.Store,
) -> None:
    """Without strict mode a step in a thread that has no run is just the function."""
    results: list[int] = []
    thread = threading.Thread(target=lambda: results.append(work(3)))
    thread.start()
    thread.join()
    assert results == [9]


# --- calls where they do not count ------------------------------------------------------------


def test_an_effect_outside_a_run() -> None:
    with pytest.raises(UsageError, match=r"\.fn"):
        charge()
    with pytest.raises(TimeoutError):
        charge.fn()
    assert calls == {"charge": 1}


def test_a_step_outside_a_run_is_just_the_function() -> None:
    assert work(3) == 9
    assert asyncio.run(work_async(3)) == 9


def test_a_flow_called_directly_outside_a_run() -> None:
    @flow
    def direct() -> int:
        return 1

    with pytest.raises(UsageError, match=r"\.run\("):
        direct()


def test_an_effect_inside_a_step(store: holdfast.types.Store) -> None:
    @step
    def outer() -> str:
        return charge()

    @flow
    def nested() -> str:
        return outer()

    refused_or_failed = refused_in_step(lambda: nested.run("r"))
    assert "charge" in refused_or_failed
    assert calls == {}


def refused_in_step(run: Any) -> str:
    """A UsageError inside a step may reach the caller as the step's failure."""
    with pytest.raises((UsageError, RunFailed)) as error:
        run()
    assert isinstance(error.value, UsageError) or "UsageError" in str(error.value)
    return str(error.value)


def test_a_step_inside_a_step_is_part_of_that_step(store: holdfast.types.Store) -> None:
    @step
    def outer() -> int:
        return work(2) + work(3)

    @flow
    def nested() -> int:
        return outer()

    assert nested.run("r") == 13
    assert [s.key for s in store.get("r").steps] == [outer.name]


def test_an_async_step_in_a_sync_flow(store: holdfast.types.Store) -> None:
    @flow
    def wrong_colour() -> Any:
        return work_async(1)

    refused(lambda: wrong_colour.run("r"))
    assert calls == {}


def test_a_generator_is_no_step() -> None:
    with pytest.raises(UsageError):

        @step
        def generating() -> Iterator[int]:
            yield 1
