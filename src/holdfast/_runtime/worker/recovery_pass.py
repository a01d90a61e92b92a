"""Recovery: resume runs that no process executes any more, and held runs that new code may free.

A worker is the recovery service of a store and makes such a pass continuously; `store.recover()` is
one pass.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._engine.journal.entries import Draft, Kind
from holdfast._engine.journal.rows import Lease, RunRow, Write
from holdfast._engine.scripts.stops import HELD_BY_CODE, Tried
from holdfast._runtime import log as logs, registry, worker_log
from holdfast._runtime.execution.admission import claim, execution_of
from holdfast._runtime.execution.execution import Code
from holdfast._runtime.execution.frames import current_task
from holdfast._runtime.execution.inbox import free_all_settled
from holdfast._runtime.execution.version_rules import has_tried
from holdfast._stores.contract import Again, Committed
from holdfast.errors import HoldfastError, RunBusy, UsageError

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.registry import RegisteredFlow

TOKENS = 500
"""How much of what runs are held on is read in one round."""


def recover(engine: Engine, limit: int) -> list[str]:
    """Execute every claimable run whose flow is known here, one after the other; and those that are
    held as diverged, and that the code here has not tried."""
    if current_task() is not None:
        raise UsageError(
            "store.recover() blocks, and this is an event loop; "
            "write `await asyncio.to_thread(store.recover)`"
        )
    after = ""
    while after := free_all_settled(engine, after):
        pass
    rows = engine.backend.claimable(engine.now_us(), limit)
    taken = [row.run_id for row in rows if take_up(engine, row.run_id)]
    flows = {name: flow for name, flow in registry.flows.items() if not flow.is_method}
    for tried, again in Untried(engine).look(flows, None):
        for row in engine.backend.waiting_on(again.token):
            if len(taken) < limit and row.version == tried.version:
                taken += [row.run_id] if _tried_again(engine, row, again) else []
    return taken


def _tried_again(engine: Engine, row: RunRow, again: Again) -> bool:
    """Give back a run that is held, if it is still as it was read, and execute it."""
    released = Draft(Kind.RUN_RELEASED, engine.now_us(), body=again.body)
    write = Write(Lease(row, acting=True), [released], row={"waiting_on": None})
    if not isinstance(engine.backend.append([write])[0], Committed):
        return False
    engine.wrote(write)
    return take_up(engine, row.run_id)


def take_up(engine: Engine, run_id: str) -> bool:
    """Execute one run that nobody works on, if its flow is known here; says whether it was taken.
    In an event loop nothing is: executing it would block the loop."""
    row = engine.backend.get(run_id)
    flow = None if row is None else registry.flows.get(row.flow)
    if row is None or flow is None or flow.is_method or engine.is_executing(run_id):
        return False
    if row.version not in flow.runs_versions or current_task() is not None:
        return False
    lease = None
    try:
        with engine.admitting(run_id):
            lease = claim(engine, run_id)
            execution = execution_of(engine, lease, awaits=flow.awaits, version=flow.version)
            execution.code = Code(flow.code(), is_chosen=False)
    except RunBusy:
        return False
    except HoldfastError as error:
        logs.warning("run %s was not taken up: %s", run_id, error)
        return lease is not None
    execution.waits.unloads = True
    try:
        _execute(flow, execution)
    except HoldfastError as error:
        # One that waits costs nothing until what it waits for comes.
        if execution.stopped is None or execution.stopped.unload is None:
            worker_log.ended(engine.backend, execution.lease.row, error)
    return True


def _execute(flow: Any, execution: Any) -> None:
    if flow.awaits:
        import asyncio

        asyncio.run(flow._execute(execution))
    else:
        flow._execute(execution)


class Untried:
    """Runs that are held as diverged, as one process sees them: which of them its code has not tried.
    They are decided about by what they are held on, not one by one."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._after = ""

    def look(
        self, flows: Mapping[str, RegisteredFlow], queues: Collection[str] | None
    ) -> list[tuple[Tried, Again]]:
        """Return what runs are held on that these flows have not tried. Reads so much of it, and goes
        on behind that the next time."""
        tokens = self._engine.backend.held_on(HELD_BY_CODE, self._after, TOKENS)
        self._after = tokens[-1] if len(tokens) == TOKENS else ""
        found: list[tuple[Tried, Again]] = []
        for token in tokens:
            tried = Tried.read(token)
            flow = None if tried is None else flows.get(tried.flow)
            if tried is None or flow is None or tried.version not in flow.runs_versions:
                continue
            if queues is not None and tried.queue not in queues:
                continue
            code = flow.code()
            if not has_tried(tried.codes, code):
                told = {"why": "other_code", "actor": "holdfast", "code": code}
                found.append((tried, Again(token, msgspec.json.encode(told))))
        return found
