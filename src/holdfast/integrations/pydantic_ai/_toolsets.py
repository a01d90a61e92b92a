"""Toolsets of every kind and from everywhere, recorded.

Pydantic AI hands an engine the toolsets that an agent is made with, and of those only the kinds that
it knows. The others come later: with a run, an override, a decorator, a capability. The keys of tool
calls do not depend on toolsets, so a toolset that is met in a run is recorded as it is met.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from pydantic_ai.exceptions import UserError
from pydantic_ai.tools import AgentDepsT, RunContext
from pydantic_ai.toolsets import (
    AbstractToolset,
    DynamicToolset,
    ExternalToolset,
    FunctionToolset,
    ToolsetTool,
    WrapperToolset,
)

from holdfast.integrations.pydantic_ai._backend import METADATA, is_recorded

Toolset = AbstractToolset[AgentDepsT]


@dataclass
class OtherToolset(WrapperToolset[AgentDepsT]):
    """A toolset of a kind that Pydantic AI does not know. `record` makes one whose calls are recorded."""

    record: Callable[[Any], Toolset[AgentDepsT]]

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the tools; what checks their arguments is recorded."""
        return await self.record(self.wrapped).get_tools(ctx)

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[AgentDepsT],
        tool: ToolsetTool[AgentDepsT],
    ) -> Any:
        """Call a tool of the toolset as this run has it."""
        return await self.record(self.wrapped).call_tool(name, tool_args, ctx, tool)


@dataclass
class _Marked(WrapperToolset[AgentDepsT]):
    """What a function returned as a toolset. Its steps and effects are marked as such, since their
    functions are out of reach where it is decided how a call is recorded."""

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        tools = await super().get_tools(ctx)
        return {
            name: _mark(tool) if is_recorded(tool, name) else tool for name, tool in tools.items()
        }


def _mark(tool: ToolsetTool[AgentDepsT]) -> ToolsetTool[AgentDepsT]:
    told = tool.tool_def
    return replace(
        tool, tool_def=replace(told, metadata={**(told.metadata or {}), METADATA: False})
    )


def marked(toolset: DynamicToolset[AgentDepsT]) -> DynamicToolset[AgentDepsT]:
    """Return a dynamic toolset that marks its steps and effects, and that has an id."""
    evaluate = toolset.toolset_func

    async def evaluated(ctx: RunContext[AgentDepsT]) -> Toolset[AgentDepsT] | None:
        made = evaluate(ctx)
        if inspect.isawaitable(made):
            made = await made
        return None if made is None else _Marked(made)

    twin = copy.copy(toolset)
    twin.toolset_func = evaluated
    twin._id = toolset.id or getattr(evaluate, "__qualname__", type(evaluate).__qualname__)
    return twin


def recorded_toolset(
    toolset: Toolset[AgentDepsT],
    known: WrapperToolset[AgentDepsT] | None,
    wrap: Callable[[Toolset[AgentDepsT]], Toolset[AgentDepsT] | None],
    record: Callable[[Any], Toolset[AgentDepsT]],
) -> Toolset[AgentDepsT]:
    """Return a toolset that was met in a run as one that is recorded.

    `known` is another one of its id that the agent was made with, `wrap` wraps the kinds that Pydantic
    AI knows, and `record` those that have plain calls.
    """
    if isinstance(toolset, ExternalToolset):  # Its tools are not called here.
        return toolset
    wrapped = wrap(toolset)
    if wrapped is None:
        return OtherToolset(toolset, record)
    if known is not None and not isinstance(toolset, FunctionToolset):
        raise UserError(
            f"A toolset added at run time has the same `id` {toolset.id!r} as one the agent was made "
            "with, and what lists their tools is known by it. Give it another `id`."
        )
    return wrapped
