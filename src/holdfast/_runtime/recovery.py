"""Recovery: take up runs that nobody works on any more. One pass of what a worker does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from holdfast._runtime import logs, registry
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
    executed: list[str] = []
    for row in engine.kept.claimable(engine.now_us(), limit):
        flow = registry.flows.get(row.flow)
        if flow is None or flow.is_method or engine.is_executing(row.run_id):
            continue
        if row.version not in flow.runs_versions:
            continue
        try:
            with engine.admitting(row.run_id):
                lease = claim(engine, row.run_id)
                executed.append(row.run_id)
                execution = execution_of(engine, lease, awaits=flow.awaits, version=flow.version)
        except RunBusy:
            continue
        except HoldfastError as error:
            logs.warning("run %s was not taken up: %s", row.run_id, error)
            continue
        execution.waits.unloads = True
        try:
            _execute(flow, execution)
        except HoldfastError as error:
            if execution.stopped is not None and execution.stopped.unload is not None:
                continue  # It waits, and costs nothing until what it waits for comes.
            logs.warning("run %s: %s", row.run_id, error)
    return executed


def _execute(flow: Any, execution: Any) -> None:
    if flow.awaits:
        import asyncio

        asyncio.run(cast("AsyncFlow[..., Any]", flow).execute(execution))
    else:
        cast("Flow[..., Any]", flow).execute(execution)
