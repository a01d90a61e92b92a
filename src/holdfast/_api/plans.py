"""Plans: a list of functions that take and return one state dict, run as a flow."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any, cast

from holdfast._api.decorators import step
from holdfast._api.flows import AsyncFlow, Flow
from holdfast._api.steps import AsyncStep, Recorded
from holdfast.errors import UsageError

StateDict = dict[str, Any]


def plan(name: str, steps: Sequence[Callable[[StateDict], Any]]) -> Flow[[StateDict], StateDict]:
    """Make a flow of functions that each take and return the state.

    Plain functions become steps under their own names. If one of them is async, the plan is an
    async flow.
    """
    if not steps:
        raise UsageError(f"plan({name!r}, []): at least one step")
    recorded: list[Any] = [
        fn if isinstance(fn, Recorded) else step(name=fn.__name__)(fn) for fn in steps
    ]
    if any(isinstance(fn, AsyncStep) for fn in recorded):
        return cast("Flow[[StateDict], StateDict]", _async_plan(name, recorded))

    def body(state: StateDict) -> StateDict:
        for fn in recorded:
            state = _checked(name, fn, fn(state))
        return state

    return Flow(_named(body, name), name=name)


def _async_plan(name: str, recorded: Sequence[Any]) -> AsyncFlow[[StateDict], StateDict]:
    async def body(state: StateDict) -> StateDict:
        for fn in recorded:
            called = fn.aio if hasattr(fn, "aio") else fn
            result: Any = await called(state)
            state = _checked(name, fn, result)
        return state

    return AsyncFlow(_named(body, name), name=name)


def _checked(name: str, fn: Any, state: Any) -> StateDict:
    if not isinstance(state, dict):
        raise UsageError(
            f"step {fn.name} of plan {name!r} returned {type(state).__name__}; "
            "each step returns the state dict"
        )
    return cast("StateDict", state)


def _named(body: Callable[..., Any], name: str) -> Callable[..., Any]:
    frame = inspect.currentframe()
    caller = frame.f_back.f_back if frame is not None and frame.f_back is not None else None
    body.__name__ = name
    body.__qualname__ = f"plan {name}"
    body.__module__ = caller.f_globals.get("__name__", "") if caller is not None else ""
    return body
