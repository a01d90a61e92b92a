"""Child runs, performed: started, taken up, read when they have ended.

In a worker a child is left to any worker, as `submit` does; a parent that waits in its process has it
executed there too, in a thread or as a task of its own.
"""

from __future__ import annotations

import contextlib
import contextvars
from typing import TYPE_CHECKING, Any

from holdfast._engine.journal.lifecycle import CLAIMABLE, Status
from holdfast._engine.journal.rows import RunRow
from holdfast._engine.scripts.child_run import CHILD
from holdfast._engine.scripts.requests import ChildEnd, ReadChild
from holdfast._engine.scripts.stops import Unwind
from holdfast._runtime import log as logs, worker_log
from holdfast._runtime.execution.admission import RunRequest, outcome, resumed, submit
from holdfast._runtime.execution.branch_waits import calling_line
from holdfast._runtime.execution.execute import admit_or_none
from holdfast._runtime.execution.execution import Execution
from holdfast._runtime.execution.version_rules import is_new_to
from holdfast.errors import RunBusy, RunCancelled, RunDeleted, RunError, RunFailed, RunRolledBack

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.registry import RegisteredFlow


class Child:
    """A child that this execution of its parent has called."""

    __slots__ = ("flow", "here", "request", "told", "works")

    def __init__(self, flow: RegisteredFlow, request: RunRequest) -> None:
        self.flow = flow
        self.request = request
        self.here = False
        """Whether it is executed in the process of its parent, which keeps its place meanwhile."""
        self.told = False
        self.works: Any = None
        """The thread or task that executes it here."""


class Children(dict[str, Child]):
    """The child runs that the flow has called, by run id."""


def failed_generation(engine: Engine, run_id: str) -> int | None:
    """Return in which generation a child has failed before, if it has."""
    row = engine.backend.get(run_id)
    return row.generation if row is not None and row.status is Status.FAILED else None


def begin(execution: Execution, run_id: str, again: int | None) -> Execution | None:
    """Start a child, or take it up; returns what is to be executed here, if it is."""
    engine = execution.engine
    child = execution.slot(Children)[run_id]
    row = submit(engine, child.request)
    if row.deleted_us is not None:
        raise RunDeleted(run_id)
    if row.status is Status.FAILED and again == row.generation:
        row = resumed(engine, row)
    is_free = row.status in CLAIMABLE or is_new_to(row, child.flow)
    if not child.here or not is_free or engine.is_executing(run_id):
        return None
    try:
        admitted = admit_or_none(engine, child.request)
    except RunBusy:
        return None
    if admitted is None:
        return None
    return admitted


def begin_blocking(execution: Execution, run_id: str, again: int | None) -> None:
    """Start a child of a sync flow; executed here, it has a thread of its own."""
    execution.slot(Children)[run_id].here |= not execution.waits.unloads
    taken = begin(execution, run_id, again)
    if taken is None:
        return
    child = execution.slot(Children)[run_id]
    flow: Any = child.flow

    def target() -> None:
        try:
            made = flow._execute(taken)
            if child.flow.awaits:
                import asyncio

                asyncio.run(made)
        except BaseException:  # noqa: S110 - its journal tells, and its parent reads that.
            pass
        finally:
            _nudge(execution)

    try:
        child.works = execution.engine.in_thread(taken, target)
    except RunError as told:
        why = RunError(execution.run_id, f"run {execution.run_id!r} was released: {told}")
        raise execution.stop(Unwind(why, released="no thread could be started")) from told


async def begin_async(execution: Execution, run_id: str, again: int | None) -> None:
    """Start a child of an async flow; executed here, it is a task of the same event loop."""
    import asyncio

    loop = asyncio.get_running_loop()
    child = execution.slot(Children)[run_id]
    # A task that the run does not know keeps it from being unloaded: then a child that is left to
    # others might wait for the very place that its parent has.
    child.here = not execution.waits.unloads or calling_line() is None
    if not child.flow.awaits:
        await loop.run_in_executor(
            execution.engine.threads(), begin_blocking, execution, run_id, again
        )
        return
    taken = await loop.run_in_executor(execution.engine.threads(), begin, execution, run_id, again)
    if taken is None:
        return
    flow: Any = child.flow

    async def target() -> None:
        try:
            await flow._execute(taken)
        except BaseException:  # noqa: S110 - its journal tells, and its parent reads that.
            pass
        finally:
            await loop.run_in_executor(None, _nudge, execution)

    child.works = loop.create_task(target(), context=contextvars.Context())


def _nudge(execution: Execution) -> None:
    """A child has ended here: let its parent look at once. If the store is closed meanwhile, or
    fails, there is nobody to tell."""
    with contextlib.suppress(BaseException):
        if execution.stopped is None and not execution.engine.closed:
            execution.inbox.refresh()
            execution.waits.ring()


def _tell_held(execution: Execution, row: RunRow) -> None:
    """Log once that a child needs a person: a caller in this process waits for the parent."""
    child = execution.slot(Children).get(row.run_id)
    if child is not None and not child.told:
        child.told = True
        text = "run %s waits for the child %s, which is held (%s); see: %s"
        see = worker_log.explain_command(execution.engine.backend, row.run_id)
        told = (row.run_id, row.held_reason, see)
        logs.warning(text, execution.run_id, *told, about=execution.lease.row)


def read(execution: Execution, request: ReadChild) -> ChildEnd:
    """Return how a child has ended, if it has."""
    engine = execution.engine
    row = engine.backend.get(request.run_id)
    child = execution.slot(Children).get(request.run_id)
    unloads = execution.waits.unloads and not (child is not None and child.here)
    if row is not None and row.status is Status.HELD and not unloads:
        _tell_held(execution, row)
    if row is None or row.status in (*CLAIMABLE, Status.HELD):
        return ChildEnd(None, unloads)
    if row.status is Status.FAILED and request.again == row.generation:
        return ChildEnd(None, unloads)
    messages = execution.inbox.all_of(CHILD + request.run_id)
    error: dict[str, str] | None = None
    value: Any = None
    try:
        value = outcome(engine, row)
    except RunFailed as failed:
        error = {"type": failed.type_name, "message": failed.message}
    except (RunCancelled, RunRolledBack) as ended:
        error = {"type": type(ended).__name__, "message": str(ended)}
    return ChildEnd(row.status.value, unloads, value, error, messages)
