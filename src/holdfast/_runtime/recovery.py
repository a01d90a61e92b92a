"""Recovery: take up runs that nobody works on any more. One pass of what a worker does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from holdfast._runtime import logs, news, registry
from holdfast._runtime.admission import claim, execution_of
from holdfast._runtime.frames import current_task
from holdfast.errors import HoldfastError, RunBusy, UsageError

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine
    from holdfast._runtime.flows import AsyncFlow, Flow


def recover(engine: Engine, limit: int) -> list[str]:
    """Execute every claimable run whose flow is known here, one after the other."""
    if current_task() is not None:
        raise UsageError(
            "store.recover() blocks, and this is an event loop; "
            "write `await asyncio.to_thread(store.recover)`"
        )
    rows = engine.kept.claimable(engine.now_us(), limit)
    return [row.run_id for row in rows if take_up(engine, row.run_id)]


def take_up(engine: Engine, run_id: str) -> bool:
    """Execute one run that nobody works on, if its flow is known here; says whether it was taken.
    In an event loop nothing is: executing it would block the loop."""
    row = engine.kept.get(run_id)
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
            news.ended(execution.lease.row, error)
    return True


def _execute(flow: Any, execution: Any) -> None:
    if flow.awaits:
        import asyncio

        asyncio.run(cast("AsyncFlow[..., Any]", flow).execute(execution))
    else:
        cast("Flow[..., Any]", flow).execute(execution)
