"""The lines of a run that wait, and when the run can be unloaded meanwhile.

A run has one line of calls, and one more per branch that is at work. When every line waits for a
time or a message and no step is executing, there is nothing to do for anybody: in a worker the flow
is unwound and the run given back (`run_waiting`), with the time or the newest message that it has
seen; it costs no thread, connection or lease until then. `flow.run` and blocks wait in the process.

A task or thread that a framework has opened for a tool is a guest of the line that awaits it (`branches`), if
`step_key` has `awaited=True`. What the framework itself does meanwhile cannot be seen, so nothing must have been
recorded for a moment (`branches.QUIET_S`) before the run is taken to wait.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from holdfast._engine.journal.rows import Message
from holdfast._engine.scripts.inbox_messages import ANSWER
from holdfast._engine.scripts.requests import Await
from holdfast._engine.scripts.stops import Unload, Unwind, Waiting
from holdfast._runtime import worker_log
from holdfast._runtime.execution import branches
from holdfast._runtime.execution.branches import Line, Wait
from holdfast._runtime.execution.frames import current
from holdfast._runtime.execution.key_override import line_here
from holdfast.errors import RunError

if TYPE_CHECKING:
    from holdfast._runtime.execution.execution import Execution

SHORT_US = 1_000_000
"""A wait that is over so soon is waited for in the process."""
LINGER_S = 0.05
"""How long a line waits for a message before the run is unloaded: the answer may be on its way."""


def calling_line() -> Line | None:
    """Return the line of the run that the calling thread or task is, if the run knows it. Without one
    the run is not unloaded while it waits."""
    frame = current.get()
    return None if frame is None else line_here(frame)


# -- what both drivers do ----------------------------------------------------------------------


def is_stale(execution: Execution, request: Await, now_us: int) -> bool:
    """Return whether the inbox is to be read before looking: for the first time, and when the time is
    over, because what came before that counts."""
    if request.kind is None:
        return False
    is_over = request.until_us is not None and request.until_us <= now_us
    return is_over or not execution.inbox.looked


def look(
    execution: Execution, request: Await, now_us: int, wait: Wait
) -> tuple[bool, Message | None, float | None]:
    """Look once: whether the wait is over, with what, and else how many seconds are left."""
    execution.check()
    message = execution.waits.reserve(execution.inbox, wait)
    if message is not None:
        return True, message, None
    times = (request.until_us, request.looks_us)
    if any(it is not None and it <= now_us for it in times):
        return True, None, None
    ends = [it for it in (*times, execution.deadline_us) if it is not None]
    return False, None, max(0.001, (min(ends) - now_us) / 1e6) if ends else None


def settle_down(execution: Execution, wait: Wait) -> float | None:
    """Every line may be waiting now: unload the run, or say in its row that it waits. Returns the
    seconds after which the wait looks again, if nobody would ring it."""
    waits = execution.waits
    heard = execution.inbox.heard
    waiting = execution.idle()
    if not waiting:
        return branches.QUIET_S if wait.by_guest else None
    ends = [it.until_us for it in waiting if it.until_us is not None]
    if ends and min(ends) - execution.engine.now_us() <= SHORT_US:
        return branches.QUIET_S if wait.by_guest else None
    if (unsure_s := waits.unsure_s()) > 0:
        return unsure_s
    if waits.unloads:
        raise execution.stop(_unload(execution, waiting, heard))
    if waits.says_new(waiting):
        execution.recorder.say_waiting(waiting)
        if any(f"{it.what}:" == ANSWER for it in waiting):
            worker_log.asks_people(execution.engine.backend, execution.lease.row)
    return None


def _unload(execution: Execution, waiting: list[Waiting], heard: int) -> Unwind:
    told = RunError(execution.run_id, f"run {execution.run_id!r} waits, and was unloaded")
    return Unwind(told, unload=Unload(waiting, heard))


def lingers(execution: Execution, request: Await) -> bool:
    """Return whether to stay for a moment before the run is unloaded."""
    return request.kind is not None and execution.waits.unloads


def await_blocking(execution: Execution, request: Await) -> Message | None:
    """Wait in this thread."""
    if request.kind is not None:
        execution.engine.inbox_poller.listen()
    with execution.waits.wait(request, calling_line()) as wait:
        stays = lingers(execution, request)
        while True:
            now_us = execution.engine.now_us()
            if is_stale(execution, request, now_us):
                execution.inbox.refresh()
            over, message, left_s = look(execution, request, now_us, wait)
            if over:
                return message
            if stays:
                stays = False
                wait.rung.wait(LINGER_S)
                wait.rung.clear()
                continue
            again_s = settle_down(execution, wait)
            if left_s is None or (again_s is not None and again_s < left_s):
                wait.rung.wait(again_s)
            else:
                execution.engine.clock.wait(wait.rung, left_s)
            wait.rung.clear()


async def await_async(execution: Execution, request: Await) -> Message | None:
    """Wait in the running event loop."""
    import asyncio

    loop = asyncio.get_running_loop()
    rung = asyncio.Event()

    def wake() -> None:
        with contextlib.suppress(RuntimeError):  # The loop was closed: nobody waits.
            loop.call_soon_threadsafe(rung.set)

    if request.kind is not None:
        execution.engine.inbox_poller.listen()
    with execution.waits.wait(request, calling_line()) as wait:
        wait.wake = wake
        stays = lingers(execution, request)
        while True:
            now_us = execution.engine.now_us()
            if is_stale(execution, request, now_us):
                await loop.run_in_executor(execution.engine.threads(), execution.inbox.refresh)
            over, message, left_s = look(execution, request, now_us, wait)
            if over:
                return message
            if stays:
                stays = False
                await _rings(rung, LINGER_S)
                continue
            again_s = settle_down(execution, wait)
            if again_s is not None and (left_s is None or again_s < left_s):
                await _rings(rung, again_s)
            elif left_s is None:
                await rung.wait()
            else:
                await execution.engine.clock.wait_async(left_s, rung)
            rung.clear()


async def _rings(rung: Any, within_s: float) -> None:
    import asyncio

    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(rung.wait(), within_s)
    rung.clear()
