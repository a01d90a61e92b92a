"""Ctrl-C and asyncio cancellation, anywhere: the run is given back, and nothing is lost."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections import Counter
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any, Self

import pytest

import holdfast
from holdfast import NOT_DONE, Done, aio, effect, flow, gather, idempotency_key, step
from holdfast._api import branch_execution
from holdfast._runtime import interrupt_shield
from holdfast.errors import RunHeld
from tests.crash.harness import World, assert_once, kinds

CANCEL_AT_MOST = 400
"""More scheduling points than the flow has; reaching it means that it never ends."""
LONG_ENOUGH_TO_LEAVE_S = 1.0
"""A process that does not wait for its branches ends well within this time."""
LINES_BETWEEN_INTERRUPTS = 41
"""A prime, so that different places are met in loops."""
WHERE_BRANCHES_START = (branch_execution.__file__, interrupt_shield.__file__)
"""The files in which the main thread is while branches start, work and end."""


# --- SIGINT -----------------------------------------------------------------------------------


def test_sigint_in_the_middle_of_a_step(world: World) -> None:
    script = world.start("slow.py", "one").until("one in step")
    script.signal(signal.SIGINT)
    ended = script.end()
    assert ended.error == "KeyboardInterrupt"
    assert world.status() == "queued"
    assert kinds(world.history(), runs=True)[-1] == "run_released"
    world.mark("two go on")
    assert world.run("slow.py", "two").result == ["one", "two", "two"]
    assert world.counts() == {"first": 1, "second": 2, "third": 1}


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_sigint_while_effects_run_in_branches(world: World, colour: str) -> None:
    """The threads that execute them are not interrupted: both outcomes are recorded."""
    script = world.start("slow_gather.py", colour)
    script.until("left in effect").until("right in effect")
    script.signal(signal.SIGINT)
    world.mark("right go on")
    with suppress(subprocess.TimeoutExpired):
        script.process.wait(LONG_ENOUGH_TO_LEAVE_S)
        pytest.fail(f"it left its effects behind: {script.end()}")
    world.mark("left go on")
    assert script.end().error == "KeyboardInterrupt"
    assert world.run("slow_gather.py", colour).result == ["left", "right"]
    assert world.counts() == {"left": 1, "right": 1}


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_interrupted_in_a_step_it_can_be_run_again_at_once(
    store: holdfast.types.Store, error: type[BaseException]
) -> None:
    calls: Counter[str] = Counter()

    @step
    def before() -> int:
        calls["before"] += 1
        return 1

    @step
    def interrupted() -> int:
        calls["interrupted"] += 1
        if calls["interrupted"] == 1:
            raise error
        return 2

    @flow
    def work() -> int:
        return before() + interrupted()

    with pytest.raises(error):
        work.run("r")
    assert store.get("r").status == "queued"
    assert work.run("r") == 3
    assert calls == {"before": 1, "interrupted": 2}


def test_interrupted_in_an_effect_leaves_it_in_doubt(store: holdfast.types.Store) -> None:
    calls: Counter[str] = Counter()

    @effect
    def charge() -> str:
        calls["charge"] += 1
        raise KeyboardInterrupt

    @flow
    def work() -> str:
        return charge()

    with pytest.raises(KeyboardInterrupt):
        work.run("r")
    with pytest.raises(RunHeld) as held:
        work.run("r")
    assert held.value.reason == "in_doubt"
    store.settle("r", charge.name, Done("ch-1"), actor="ops")
    assert work.run("r") == "ch-1"
    assert calls["charge"] == 1


def test_interrupted_while_a_helper_thread_executes_the_effect(store: holdfast.types.Store) -> None:
    """With `timeout=` the body has a thread of its own, which Ctrl-C leaves at work: not ended."""
    heard, go_on = threading.Event(), threading.Event()
    main = threading.get_ident()
    calls: Counter[str] = Counter()

    def interrupt(*_: object) -> None:
        heard.set()
        raise KeyboardInterrupt

    @effect(timeout=30)
    def charge() -> str:
        calls["charge"] += 1
        while not heard.wait(0.01):
            signal.pthread_kill(main, signal.SIGINT)
        go_on.wait(30)
        return "ch-1"

    @charge.on_doubt
    def look_up() -> Any:
        return NOT_DONE

    @flow
    def work() -> str:
        return charge()

    before = signal.signal(signal.SIGINT, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            work.run("r")
        with pytest.raises(RunHeld) as held:
            work.run("r")
    finally:
        signal.signal(signal.SIGINT, before)
        go_on.set()
    assert held.value.reason == "in_doubt"
    assert calls == {"charge": 1}


class Bank:
    """An outside world in this process, that can be asked."""

    def __init__(self) -> None:
        self.charges: dict[str, str] = {}
        self.requests: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    def charge(self) -> str:
        key = idempotency_key()
        self.requests[key] += 1
        return self.charges.setdefault(key, f"ch-{len(self.charges) + 1}")

    def look_up(self) -> Any:
        found = self.charges.get(idempotency_key())
        return NOT_DONE if found is None else Done(found)


def ordered(bank: Bank) -> holdfast.types.Flow[[], list[str]]:
    """Return a flow of a step, an effect and a step."""

    @step
    def before() -> str:
        bank.calls["before"] += 1
        return "before"

    @effect
    def charge() -> str:
        made = bank.charge()  # Asks the library for its key first: an interrupt may strike there.
        bank.calls["charge"] += 1
        return made

    @charge.on_doubt
    def look_up() -> Any:
        return bank.look_up()

    @step
    def after() -> str:
        bank.calls["after"] += 1
        return "after"

    @flow
    def order() -> list[str]:
        return [before(), charge(), after()]

    return order


class Interrupter:
    """Sends SIGINT at the n-th line that this thread executes in Holdfast, or in files of it."""

    def __init__(self, at: int, files: tuple[str, ...] = (".py",)) -> None:
        self.at = at
        self.files = files
        self.lines = 0
        self.where = ""
        self.ours = str(Path(holdfast.__file__).parent)

    def __call__(self, frame: FrameType, event: str, arg: object) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(self.ours) or not name.endswith(self.files):
            return None
        if event == "line":
            self.lines += 1
            if self.lines == self.at:
                self.where = f"{frame.f_code.co_filename[len(self.ours) :]}:{frame.f_lineno}"
                signal.raise_signal(signal.SIGINT)
        return self

    def __enter__(self) -> Self:
        sys.settrace(self)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(None)


def test_interrupted_at_any_line_of_the_library(store: holdfast.types.Store) -> None:
    """Wherever it strikes, it comes through, the run can be run again at once, and charges once."""
    bank = Bank()
    order = ordered(bank)
    order.run("warm")
    with Interrupter(at=-1) as counter:
        order.run("whole")
    assert counter.lines > 10 * LINES_BETWEEN_INTERRUPTS
    for at in range(1, counter.lines, LINES_BETWEEN_INTERRUPTS):
        bank.calls.clear()
        charges_before = len(bank.charges)
        run_id = f"r{at}"
        where = Interrupter(at)
        with pytest.raises(KeyboardInterrupt), where:
            order.run(run_id)
        result = order.run(run_id)
        assert result[::2] == ["before", "after"], where.where
        assert len(bank.charges) == charges_before + 1, where.where
        assert_once(bank.calls, but={"before": 2, "after": 2})
        assert kinds(store.history(run_id)).count("step_completed") <= 3
    assert set(bank.requests.values()) == {1}
    assert not list(store.verify())


def test_interrupted_at_any_line_while_branches_work(store: holdfast.types.Store) -> None:
    """No effect of a branch is at work when the interrupt leaves `run`, wherever it strikes."""
    at_work: Counter[str] = Counter()
    sent: Counter[str] = Counter()
    go_on = threading.Event()

    @effect(key="{run}:{name}")
    def send(run: str, name: str) -> str:
        at_work[run] += 1
        go_on.wait(0.002)
        sent[f"{run}:{name}"] += 1
        at_work[run] -= 1
        return name

    @flow
    def both(run: str) -> list[str]:
        return list(gather(lambda: send(run, "left"), lambda: send(run, "right")))

    both.run("warm", "warm")
    with Interrupter(-1, WHERE_BRANCHES_START) as counter:
        both.run("whole", "whole")
    assert counter.lines > 50
    for at in range(1, counter.lines):
        run_id, where = f"r{at}", Interrupter(at, WHERE_BRANCHES_START)
        with suppress(KeyboardInterrupt), where:
            both.run(run_id, run_id)
        assert at_work[run_id] == 0, where.where
        assert both.run(run_id, run_id) == ["left", "right"], where.where
    assert set(sent.values()) == {1}


def test_a_handler_of_the_users_own_is_called_while_branches_work(
    store: holdfast.types.Store,
) -> None:
    """Only what a handler raises waits for the branches: one that tells them to end is in time."""
    stop, started = threading.Event(), threading.Event()
    main = threading.get_ident()

    @step
    def work_until_stopped() -> bool:
        started.set()
        return stop.wait(60)

    @step
    def interrupt() -> None:
        started.wait(60)
        signal.pthread_kill(main, signal.SIGINT)

    @flow
    def both() -> bool:
        return gather(lambda: work_until_stopped(), lambda: interrupt())[0]

    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    try:
        assert both.run("r") is True
    finally:
        signal.signal(signal.SIGINT, before)


# --- asyncio ----------------------------------------------------------------------------------


class CancellingLoop(asyncio.SelectorEventLoop):
    """Cancels a task after the k-th callback that was scheduled."""

    def __init__(self, at: int) -> None:
        super().__init__()
        self.at = at
        self.scheduled = 0
        self.victim: asyncio.Task[Any] | None = None

    def call_soon(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        self._count()
        return super().call_soon(callback, *args, context=context)

    def call_soon_threadsafe(self, callback: Any, *args: Any, context: Any = None) -> Any:  # type: ignore[override]
        handle = super().call_soon_threadsafe(callback, *args, context=context)
        super().call_soon_threadsafe(self._count)
        return handle

    def _count(self) -> None:
        if self.victim is None or self.victim.done():
            return
        self.scheduled += 1
        if self.scheduled == self.at:
            self.victim.cancel()


def awaited(bank: Bank) -> holdfast.types.AsyncFlow[[], list[str]]:
    """Return an async flow with every kind of await in it."""

    @step
    async def before(name: str) -> str:
        bank.calls[name] += 1
        await asyncio.sleep(0)
        return name

    @step
    def in_thread() -> str:
        bank.calls["thread"] += 1
        return "thread"

    @effect
    async def charge() -> str:
        bank.calls["charge"] += 1
        await asyncio.sleep(0)
        made = bank.charge()
        await asyncio.sleep(0)
        return made

    @charge.on_doubt
    async def look_up() -> Any:
        await asyncio.sleep(0)
        return bank.look_up()

    @flow
    async def order() -> list[str]:
        first = await before("first")
        left, right = await aio.gather(before("left"), before("right"))
        return [first, await charge(), left, right, await in_thread.aio()]

    return order


def test_cancelled_at_every_await(store: holdfast.types.Store) -> None:
    bank = Bank()
    order = awaited(bank)
    steps = {"first", "left", "right", "thread", "charge"}
    ended_by_itself = 0
    for k in range(1, CANCEL_AT_MOST):
        run_id = f"r{k}"
        bank.calls.clear()
        charges_before = len(bank.charges)
        cancelled = _run_cancelled(order, run_id, k)
        if cancelled:
            assert store.get(run_id).status in {"queued", "completed"}, k
        recorded = {s.name for s in store.get(run_id).steps if s.status == "completed"}
        once = Counter(bank.calls)
        result = asyncio.run(order.run(run_id))
        assert result[0] == "first"
        assert result[2:] == ["left", "right", "thread"]
        assert len(bank.charges) == charges_before + 1, k
        assert set(bank.calls) == steps
        assert_once(bank.calls, but=dict.fromkeys(steps, 2))
        for name in recorded & {"charge", "in_thread"}:
            assert bank.calls[name.removeprefix("in_")] == once[name.removeprefix("in_")], k
        if not cancelled:
            ended_by_itself += 1
            if ended_by_itself == 3:
                break
    else:
        pytest.fail("it never ended by itself")
    assert set(bank.requests.values()) == {1}, "the on_doubt function was asked before a repeat"
    assert not list(store.verify())


def _run_cancelled(order: Any, run_id: str, k: int) -> bool:
    """Run it in a loop that cancels it after k callbacks; say whether that stopped it."""
    loop = CancellingLoop(k)
    try:
        loop.victim = loop.create_task(order.run(run_id))
        try:
            loop.run_until_complete(loop.victim)
        except asyncio.CancelledError:
            return True
        return False
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def test_interrupted_at_any_line_while_awaiting(store: holdfast.types.Store) -> None:
    """asyncio turns the signal into a cancellation, which may strike at any line as well."""
    bank = Bank()
    order = awaited(bank)

    def run(run_id: str) -> list[str]:
        return asyncio.run(order.run(run_id))

    run("warm")
    with Interrupter(at=-1) as counter:
        run("whole")
    for at in range(1, counter.lines, LINES_BETWEEN_INTERRUPTS):
        charges_before = len(bank.charges)
        where = Interrupter(at)
        try:
            with where:
                run(f"r{at}")
        except KeyboardInterrupt:
            pass
        assert run(f"r{at}")[2:] == ["left", "right", "thread"], where.where
        assert len(bank.charges) == charges_before + 1, where.where
    assert set(bank.requests.values()) == {1}
    assert not list(store.verify())


def test_a_cancelled_task_that_started_nothing_can_be_run(store: holdfast.types.Store) -> None:
    bank = Bank()
    order = awaited(bank)

    async def cancel_at_once() -> None:
        task = asyncio.create_task(order.run("r"))
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_at_once())
    assert len(asyncio.run(order.run("r"))) == 5
