"""A run is unloaded while tools wait that a framework calls in tasks and threads of its own."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

import pytest

from holdfast import Retry, aio, effect, flow, step
from holdfast._runtime.execution import branches
from holdfast._runtime.execution.execution import Execution
from holdfast.adapters import step_key
from holdfast.testing import store as private_store
from holdfast.testing.stores import PrivateStore

made: list[str] = []
gate = threading.Event()


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[PrivateStore]:
    made.clear()
    gate.clear()
    monkeypatch.setattr(branches, "QUIET_S", 0.3)
    with private_store(url="sqlite:") as opened:
        yield opened


@step(name="ut-look")
def look(what: str) -> str:
    assert gate.wait(20)
    made.append(what)
    return what


@effect(name="ut-pay", needs_approval=True)
def pay(amount: int) -> int:
    made.append(f"paid {amount}")
    return amount


def call(tool: Callable[..., Any], given: Any, call_id: str) -> Any:
    with step_key(call_id, awaited=True):
        return tool(given)


async def call_async(tool: Any, given: Any, call_id: str) -> Any:
    with step_key(call_id, awaited=True):
        return await tool.aio(given)


def in_threads(*calls: tuple[Any, Any, str]) -> list[Any]:
    bound = [functools.partial(copy_context().run, call, *given) for given in calls]
    with ThreadPoolExecutor(len(calls)) as pool:
        return [it.result() for it in [pool.submit(each) for each in bound]]


@flow(name="ut-threads")
def threads() -> Any:
    return in_threads((look, "lamp", "call_1"), (pay, 3, "call_2"))


@flow(name="ut-tasks")
async def tasks() -> Any:
    both = call_async(look, "lamp", "call_1"), call_async(pay, 3, "call_2")
    return list(await asyncio.gather(*both))


@flow(name="ut-threads-of-async")
async def threads_of_async() -> Any:
    both = (look, "lamp", "call_1"), (pay, 3, "call_2")
    return list(await asyncio.gather(*(asyncio.to_thread(call, *given) for given in both)))


@flow(name="ut-unrecorded")
async def unrecorded() -> Any:
    """The flow itself is at work while a task of its own waits, and awaits that later."""
    with step_key("call_2"):
        asked = asyncio.create_task(aio.ask("Sure?", name="sure"))
    while not gate.is_set():
        await asyncio.sleep(0.01)
    made.append("worked")
    return await asked


@flow(name="ut-nested")
async def nested() -> Any:
    """A tool runs an agent of its own, which calls tools."""

    async def agent() -> Any:
        with step_key("outer", awaited=True):
            inner = (
                asyncio.create_task(call_async(look, "lamp", "call_1")),
                asyncio.create_task(call_async(pay, 3, "call_2")),
            )
            return list(await asyncio.gather(*inner))

    (result,) = await asyncio.gather(agent())
    return result


@flow(name="ut-plain")
async def plain() -> Any:
    """One tool waits for a person; another has its answer, and works on in plain code."""

    async def asks() -> Any:
        with step_key("call_1", awaited=True):
            return await aio.ask("Sure?", name="sure")

    async def works() -> Any:
        with step_key("call_2", awaited=True):
            said = await aio.ask("How much?", name="amount")
            while not gate.is_set():
                await asyncio.sleep(0.01)
            made.append(f"worked {said}")
            return await look.aio("lamp")

    return list(await asyncio.gather(asks(), works()))


@flow(name="ut-short")
async def short() -> Any:
    """One tool waits for a person; the pause of another ends soon."""

    async def pauses() -> Any:
        with step_key("call_2", awaited=True):
            return await attempt.aio()

    async def asks() -> Any:
        with step_key("call_1", awaited=True):
            return await aio.ask("Sure?", name="sure")

    return list(await asyncio.gather(asks(), pauses()))


@step(name="ut-attempt", retry=Retry(attempts=2, initial_wait_s=0.9, jitter=0))
def attempt() -> str:
    made.append("tried")
    if len(made) == 1:
        raise ValueError("not yet")
    return "well"


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Waits until so many looks whether a run is idle found that it is not."""
    idle, busy = Execution.idle, threading.Semaphore(0)

    def spied(self: Execution) -> Any:
        if not (found := idle(self)):
            busy.release()
        return found

    def until(many: int) -> None:
        for _ in range(many):
            assert busy.acquire(timeout=20)

    monkeypatch.setattr(Execution, "idle", spied)
    return until


@pytest.mark.parametrize("it", [threads, tasks, threads_of_async, nested])
def test_what_works_keeps_the_run_and_what_waits_does_not(
    store: PrivateStore, it: Any, looks: Callable[[int], None]
) -> None:
    with store.worker(flows=[it]):
        handle = it.submit("r")
        looks(3)
        before = store._backend.get("r")
        assert before is not None
        assert before.owner is not None
        gate.set()
        store.wait_until("r", status="waiting")
        row = store._backend.get("r")
        assert row is not None
        assert (row.owner, row.claims) == (None, 0)
        (question,) = store.questions(run_id="r")
        store.approve("r", question.name, digest=question.digest, actor="ana")
        assert handle.result(timeout=20) == ["lamp", 3]
    assert made == ["lamp", "paid 3"]


def test_a_tool_at_work_in_plain_code_keeps_the_run(
    store: PrivateStore, looks: Callable[[int], None]
) -> None:
    with store.worker(flows=[plain]):
        handle = plain.submit("r")
        store.wait_until("r", status="waiting")
        store.answer("r", "amount", "30", actor="ana")
        looks(3)
        row = store._backend.get("r")
        assert row is not None
        assert row.owner is not None
        gate.set()
        store.wait_until("r", done="ut-look:call_2")
        store.wait_until("r", status="waiting")
        store.answer("r", "sure", "yes", actor="ana")
        assert handle.result(timeout=20) == ["yes", "lamp"]
    assert made.count("lamp") == 1


def test_a_short_pause_beside_it_does_not_keep_the_run(store: PrivateStore) -> None:
    with store.worker(flows=[short]):
        handle = short.submit("r")
        store.wait_until("r", done="ut-attempt:call_2")
        store.wait_until("r", status="waiting")
        store.answer("r", "sure", "yes", actor="ana")
        assert handle.result(timeout=20) == ["yes", "well"]


def test_a_task_that_nobody_is_known_to_await_keeps_the_run(
    store: PrivateStore, looks: Callable[[int], None]
) -> None:
    with store.worker(flows=[unrecorded]):
        handle = unrecorded.submit("r")
        looks(1)
        store.answer("r", "sure", "yes", actor="ana")
        gate.set()
        assert handle.result(timeout=20) == "yes"
    assert made == ["worked"]


def test_where_a_run_waits_in_its_process_people_see_that_it_waits(store: PrivateStore) -> None:
    gate.set()
    handle = tasks.start("r")
    store.wait_until("r", waiting=True)
    (question,) = store.questions(run_id="r")
    store.approve("r", question.name, digest=question.digest, actor="ana")
    assert handle.result(timeout=20) == ["lamp", 3]
    assert made == ["lamp", "paid 3"]
