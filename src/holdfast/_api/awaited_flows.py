"""`flow.aio`: runs of a flow for callers in an event loop."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast

from holdfast._api import child_flows
from holdfast._api.handle import Handle
from holdfast._runtime.execution.frames import current

if TYPE_CHECKING:
    from holdfast._api.flows import AsyncFlow, Flow

P = ParamSpec("P")
R = TypeVar("R")
Q = ParamSpec("Q")
T = TypeVar("T")


class Awaited(Generic[P, R]):
    """`flow.aio`: the same calls for async callers; a sync flow works in a thread."""

    def __init__(self, flow: Flow[P, R] | AsyncFlow[P, R]) -> None:
        self._flow = flow

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> Coroutine[Any, Any, R]:
        """Inside an async flow: a child run of a sync flow, awaited."""
        return child_flows.call_child_async(self._flow, args, kwargs)

    async def run(self, run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> R:
        """Start the run, or pick it up where it stopped, and await its end."""
        if self._flow.awaits:
            return await cast("AsyncFlow[P, R]", self._flow).run(run_id, *args, **kwargs)
        return await _in_thread(cast("Flow[P, R]", self._flow).run, run_id, *args, **kwargs)

    async def start(self, run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Start the run in the background of this process. Inside a flow: a child of this name."""
        if current.get() is not None:
            return await child_flows.start_child_async(self._flow, run_id, args, kwargs)
        return await _in_thread(self._flow.start, run_id, *args, **kwargs)

    async def submit(self, run_id: str, /, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Record the run and leave it to any worker."""
        return await _in_thread(self._flow.submit, run_id, *args, **kwargs)


async def _in_thread(work: Callable[Q, T], *args: Q.args, **kwargs: Q.kwargs) -> T:
    import asyncio

    return await asyncio.to_thread(work, *args, **kwargs)
