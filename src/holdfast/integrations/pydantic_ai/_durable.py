"""`Durable`, the capability that users give to their agents."""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
import uuid
from collections.abc import AsyncIterable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pydantic_ai.durable_exec import BaseDurabilityCapability, DurabilityEngineSpec
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models import Model, ModelRequestContext
from pydantic_ai.output import OutputContext
from pydantic_ai.tools import (
    AgentDepsT,
    DeferredToolRequests,
    DeferredToolResults,
    RunContext,
    ToolApproved,
    ToolDenied,
)
from pydantic_ai.toolsets import (
    AbstractToolset,
    DynamicToolset,
    ExternalToolset,
    FunctionToolset,
    ToolsetTool,
    WrapperToolset,
)

import holdfast
from holdfast.adapters import step_key
from holdfast.errors import Rejected
from holdfast.integrations._tool_questions import ask_about
from holdfast.integrations.pydantic_ai import _streams
from holdfast.integrations.pydantic_ai._backend import (
    METADATA,
    Backend,
    EffectTool,
    is_recorded,
    line,
    process_output,
)
from holdfast.integrations.pydantic_ai._plain import Codec

_CONVERSATIONS = uuid.UUID("5f0e2a6c-9d0b-4c55-8a63-0d2c3f1f7b42")


class Durable(BaseDurabilityCapability[AgentDepsT]):
    """Makes an agent durable inside a run, and changes nothing outside of one.

    `effects=` lists tools with side effects. Give the name of a tool whose function is not
    accessible, such as a tool of an MCP server: its calls are effects, and a person is asked when
    one is in doubt. For a tool whose function is an effect, or that calls an effect of the same
    name, give that effect.

    With `ask=True`, calls that need approval (`requires_approval=True`) become questions to a
    person. Otherwise other handlers of the agent decide, or the calls are its output.

    `models=` are additional models that a run may select by key. `name=` replaces the agent's name
    in step keys.
    """

    engine_spec: ClassVar[DurabilityEngineSpec] = DurabilityEngineSpec(
        engine_name="Holdfast",
        durable_unit_noun="step",
        durable_container_noun="run",
        codec=Codec(),
        toolset_lifecycles={
            "function": "enter-always",
            "mcp": "enter-always",
            "dynamic": "enter-never",
        },
        tool_config_key=METADATA,
    )

    def __init__(
        self,
        *,
        effects: Sequence[EffectTool] = (),
        ask: bool = True,
        models: Mapping[str, Model] | None = None,
        name: str | None = None,
    ) -> None:
        super().__init__(models=models, name=name)
        self._effects = tuple(effects)
        self._ask = ask

    @property
    def in_durable_context(self) -> bool:
        """Return whether this code runs in a flow; calls inside a step are part of that step."""
        run = holdfast.context.current_run()
        return run is not None and run.step is None

    def get_durable_operation_backend(self) -> Backend:
        """Return the backend that records the agent's calls."""
        return Backend(self.name, self._effects)

    # --- toolsets -------------------------------------------------------------------------------------

    def _build_dynamic_toolset(self, toolset: Any) -> Any:
        built = super()._build_dynamic_toolset(marked(toolset))
        built.wrapped = toolset  # Identifies it later.
        return built

    def get_wrapper_toolset(
        self, toolset: AbstractToolset[AgentDepsT]
    ) -> AbstractToolset[AgentDepsT] | None:
        """Record the calls of all toolsets of a run, from any source."""

        def replaced(found: AbstractToolset[AgentDepsT]) -> AbstractToolset[AgentDepsT]:
            known = self._toolsets_by_id.get(found.id or "")
            if known is not None and known.wrapped is found:
                return known
            if not self.in_durable_context:
                return found
            return recorded_toolset(
                found, known, self._wrap_leaf_toolset, self._build_function_toolset
            )

        return toolset.visit_and_replace(replaced)

    # --- ids ------------------------------------------------------------------------------------------

    def get_default_run_id(self) -> str | None:
        """Return the id of an agent run, the same on replay. Pydantic AI calls this since 2.61."""
        if not self.in_durable_context:
            return None
        with step_key(line(self.name)):
            return str(holdfast.context.uuid4())

    def get_default_conversation_id(self, run_id: str) -> str | None:
        """Return the id of a conversation that begins with this agent run."""
        if not self.in_durable_context:
            return None
        return str(uuid.uuid5(_CONVERSATIONS, run_id))

    # There is no `get_run_start_time`: with it, the time limit of an agent run would have expired
    # when its recorded calls are replayed later.

    # --- streams --------------------------------------------------------------------------------------

    def _effective_event_stream_handler(self) -> Any:
        return _streams.live_handler()

    async def wrap_model_request(
        self, ctx: RunContext[AgentDepsT], *, request_context: ModelRequestContext, handler: Any
    ) -> ModelResponse:
        """Record the request; a stream is visible while it is recorded."""

        async def followed(request_context: ModelRequestContext) -> ModelResponse:
            if self.in_durable_context:
                request_context = _streams.follow(request_context)
            response: ModelResponse = await handler(request_context)
            return response

        return await super().wrap_model_request(
            ctx, request_context=request_context, handler=followed
        )

    async def before_model_request(
        self, ctx: RunContext[AgentDepsT], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        """Record a model that another hook has substituted."""
        request_context = await super().before_model_request(ctx, request_context)
        return _streams.follow(request_context) if self.in_durable_context else request_context

    async def wrap_run_event_stream(
        self, ctx: RunContext[AgentDepsT], *, stream: AsyncIterable[Any]
    ) -> AsyncIterable[Any]:
        """Pass events to the handlers of the agent and of its caller."""
        async for event in stream:
            yield event

    # --- outputs --------------------------------------------------------------------------------------

    async def wrap_output_process(
        self,
        ctx: RunContext[AgentDepsT],
        *,
        output_context: OutputContext,
        output: Any,
        handler: Any,
    ) -> Any:
        """Give a key to the calls of output functions and validators, which run in any task or
        thread.

        They are not recorded themselves, since their return type is not declared.
        """
        if not self.in_durable_context or ctx.partial_output:
            return await handler(output)
        call = output_context.tool_call
        call_id = None if call is None else call.tool_call_id
        return await process_output(call_id, line(self.name, ctx), lambda: handler(output))

    # --- approvals --------------------------------------------------------------------------------------

    async def handle_deferred_tool_calls(
        self, ctx: RunContext[AgentDepsT], *, requests: DeferredToolRequests
    ) -> DeferredToolResults | None:
        """Ask a person about each call that needs approval, in parallel."""
        if not (self._ask and self.in_durable_context and requests.approvals):
            return None
        decided = await asyncio.gather(*map(_approval, requests.approvals))
        ids = [call.tool_call_id for call in requests.approvals]
        return DeferredToolResults(approvals=dict(zip(ids, decided, strict=True)))


async def _approval(call: ToolCallPart) -> bool | ToolApproved | ToolDenied:
    question = f"Call {call.tool_name} with {json.dumps(call.args_as_dict(), ensure_ascii=False)}?"
    with step_key("approval", awaited=True):  # The question's name contains the id of the call.
        try:
            said = await ask_about(question, f"{call.tool_name} {call.tool_call_id}")
        except Rejected as refused:
            return ToolDenied(str(refused))
    return ToolApproved() if said else ToolDenied()


# -- toolsets ----------------------------------------------------------------------------------
# Recorded toolsets of any class and from any source.
#
# Pydantic AI passes an engine only the toolsets with which an agent is created, and of those only
# the classes that it knows. Others are added later: with a run, an override, a decorator, a
# capability. The keys of tool calls do not depend on toolsets, so a toolset is wrapped for
# recording when a run first uses it.


Toolset = AbstractToolset[AgentDepsT]


@dataclass
class OtherToolset(WrapperToolset[AgentDepsT]):
    """A toolset of a class that Pydantic AI does not know. `record` makes one whose calls are
    recorded."""

    record: Callable[[Any], Toolset[AgentDepsT]]

    async def get_tools(self, ctx: RunContext[AgentDepsT]) -> dict[str, ToolsetTool[AgentDepsT]]:
        """Return the tools, with recorded argument validators."""
        return await self.record(self.wrapped).get_tools(ctx)

    async def call_tool(
        self,
        name: str,
        tool_args: dict[str, Any],
        ctx: RunContext[AgentDepsT],
        tool: ToolsetTool[AgentDepsT],
    ) -> Any:
        """Call a tool of the toolset of this run."""
        return await self.record(self.wrapped).call_tool(name, tool_args, ctx, tool)


@dataclass
class _Marked(WrapperToolset[AgentDepsT]):
    """The toolset that a function returned. Its steps and effects are marked as such, since their
    functions are not accessible where the way of recording is chosen."""

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
    """Return a recording toolset for one that a run uses.

    `known` is a toolset with the same id with which the agent was created, `wrap` wraps the classes
    that Pydantic AI knows, and `record` those with plain calls.
    """
    if isinstance(toolset, ExternalToolset):  # Its tools are not called here.
        return toolset
    wrapped = wrap(toolset)
    if wrapped is None:
        return OtherToolset(toolset, record)
    if known is not None and not isinstance(toolset, FunctionToolset):
        raise UserError(
            f"A toolset added at run time has the same `id` {toolset.id!r} as one the agent was made "
            "with, and the recorded list of tools has that id as key. Give it another `id`."
        )
    return wrapped
