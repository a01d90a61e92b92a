"""Operations of Pydantic AI as recorded calls.

    a request to the model          model:<agent>        with its conversation
    a tool call                     <tool>:<call id>     with its arguments
    lists of tools, and the rest    <operation>:<agent>

They are matched by key and have no positions, since Pydantic AI calls tools in its own tasks. The
keys of an agent that runs inside a tool call contain the id of that call.
"""

from __future__ import annotations

import contextlib
import functools
import traceback
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextvars import ContextVar
from enum import Enum
from typing import TYPE_CHECKING, Any

from pydantic_ai import durable_exec
from pydantic_ai.durable_exec import (
    CapabilityOperationId,
    DurableOperationBackend,
    ModelCancelSuspendedResponseId,
    ModelCompactMessagesId,
    ModelRequestId,
    ToolsetCallToolId,
    ToolsetGetInstructionsId,
    ToolsetGetToolsId,
    ToolsetValidateToolArgumentsId,
)
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.toolsets import FunctionToolset

import holdfast
from holdfast.adapters import as_effect, as_step, step_key
from holdfast.errors import NotSerializable, Rejected, StepFailed, UsageError
from holdfast.integrations._recorded_errors import CallFailed, as_itself, kept
from holdfast.integrations._relay import Left
from holdfast.integrations._run_context import Watched, advised, restoring, takes_context
from holdfast.integrations.pydantic_ai import _plain, _streams
from holdfast.types import AsyncEffect, AsyncStep, Effect, Step

if TYPE_CHECKING:
    from pydantic_ai.durable_exec import BoundDurableOperation, DurableOperation

Body = Callable[[], Awaitable[Any]]
EffectTool = str | Effect[..., Any] | AsyncEffect[..., Any]

METADATA = "holdfast"
"""`@agent.tool(metadata={"holdfast": False})`: record the calls inside the tool, not the tool
call."""

# The enclosing tool calls, outermost first; only those that are not recorded as a whole.
_inside: ContextVar[tuple[str, ...]] = ContextVar("holdfast_pydantic_ai_inside", default=())

# Since 2.37: calls inside a unit are part of it.
_unit = getattr(durable_exec, "durable_unit_scope", contextlib.nullcontext)


class How(Enum):
    """How a tool call is recorded."""

    STEP = "step"
    EFFECT = "effect"
    OWN = "own"
    """It records itself: its function is a step or an effect, or calls some."""


class Backend(DurableOperationBackend[How]):
    """Passes each operation of an agent to Holdfast."""

    def __init__(self, agent_name: str, effects: Sequence[EffectTool]) -> None:
        self._agent_name = agent_name
        self._named = {it for it in effects if isinstance(it, str)}
        self._own = {it.name for it in effects if not isinstance(it, str)}

    def bind(
        self, operation: DurableOperation[Any, Any, Any]
    ) -> BoundDurableOperation[Any, Any, Any]:
        """Return the object that calls the operation and records it."""
        return _Bound(operation, self._agent_name)

    def config_for_tool(
        self, operation: DurableOperation[Any, Any, Any], *, tool: Any, tool_name: str
    ) -> How:
        """Return how the calls of a tool are recorded."""
        if tool_name in self._named:
            return How.EFFECT
        if tool is None:
            return How.STEP
        said = (tool.tool_def.metadata or {}).get(METADATA)
        if said is False or tool_name in self._own or is_recorded(tool, tool_name):
            return How.OWN
        return How.STEP

    def registrations(self) -> Sequence[Callable[..., object]]:
        """Return nothing: Holdfast needs no registration before a run."""
        return ()


def is_recorded(tool: Any, name: str) -> bool:
    """Return whether the function of a tool is a step or an effect already, under any name."""
    return isinstance(function_of(tool, name), Step | AsyncStep)


def function_of(tool: Any, name: str) -> Any:
    """Return the function of a tool, or None if it is not accessible."""
    if tool is None:
        return None
    if isinstance(tool.toolset, FunctionToolset):
        held = tool.toolset.tools.get(getattr(tool, "original_name", None) or name)
        if held is not None:
            return held.function
    schema = getattr(getattr(tool, "call_func", None), "__self__", None)
    return getattr(schema, "function", None)


class _Bound:
    """One operation; a call of it is recorded."""

    def __init__(self, operation: DurableOperation[Any, Any, Any], agent_name: str) -> None:
        self.operation = operation
        self._agent_name = agent_name

    async def __call__(self, params: Any, *, config: object | None = None) -> Any:
        async def body() -> Any:
            with _unit():
                return self.operation.result_codec.dump(await self.operation.handler(params))

        payload = await self._record(params, body, config)
        return self.operation.result_codec.load(payload)

    async def _record(self, params: Any, body: Body, config: object | None) -> Any:
        match self.operation.operation_id:
            case ModelRequestId():
                return await self._ask(params, body)
            case ToolsetCallToolId():
                return await _call_tool(params, body, config)
            case ToolsetValidateToolArgumentsId():
                with step_key(_call_id(params)):
                    checked = _step("validate_args")(_plain.arguments(params.tool_args), body)
                    return await as_itself(checked)
            case other:
                with step_key(line(self._agent_name, _context(params))):
                    return await as_itself(_step(_name(other))(None, body))

    async def _ask(self, params: Any, body: Body) -> Any:
        messages = _plain.conversation(params.messages)
        with step_key(line(self._agent_name, params.run_context)):
            asked = _ask_model(messages, _plain.instructions(params.messages), body)
            try:
                return await as_itself(asked)
            except _plain.ModelFailed as error:
                raise error.original() from error


def line(name: str, ctx: Any = None) -> str:
    """Return the key of an agent's own calls: its name, or the key that the agent's caller has set.

    The key of an agent that runs inside a tool call contains the id of that call.
    """
    said = (ctx.metadata or {}).get(METADATA) if ctx is not None else None
    return ".".join((*_inside.get(), str(said or name)))


def _context(params: Any) -> Any:
    return params.ctx if hasattr(params, "ctx") else getattr(params, "run_context", None)


def _call_id(params: Any) -> str:
    return line(params.ctx.tool_call_id or params.name)


def _name(operation_id: object) -> str:
    """Return the name of a step that is neither a model request nor a tool call."""
    match operation_id:
        case ModelCompactMessagesId():
            return "compact_messages"
        case ModelCancelSuspendedResponseId():
            return "cancel_response"
        case ToolsetGetToolsId(toolset_id=toolset_id):
            return _sound(f"get_tools {toolset_id or ''}".rstrip())
        case ToolsetGetInstructionsId(toolset_id=toolset_id):
            return _sound(f"get_instructions {toolset_id or ''}".rstrip())
        case CapabilityOperationId(capability_id=capability_id, operation=operation):
            return _sound(f"{capability_id}.{operation}")
    return type(operation_id).__name__


def _sound(name: str) -> str:
    return "".join("_" if char in "/#[]:%" else char for char in name)


async def _call_tool(params: Any, body: Body, how: object) -> Any:
    arguments = _plain.arguments(params.tool_args)
    watched = Watched(params.name, params.ctx.deps)
    with step_key(_call_id(params), awaited=True), watched.refusals():
        if how is How.EFFECT:
            called = _effect(_sound(params.name))(arguments, body, watched)
            return watched.replayed(await _reporting_refusals(called))
        if how is not How.OWN:
            called = _step(_sound(params.name))(arguments, body, watched)
            return watched.replayed(await as_itself(called))
        with _within(params.ctx.tool_call_id or params.name):
            return await _reporting_refusals(_call_own(params, body))


async def _call_own(params: Any, body: Body) -> Any:
    """Call a tool that records itself, or whose inner calls are recorded."""
    function = function_of(params.tool, params.name) if hasattr(params, "tool") else None
    try:
        if isinstance(function, Step | AsyncStep) and takes_context(function):
            return await restoring(params.name, params.ctx.deps, body)
        return await body()
    except NotSerializable as refused:
        raise UsageError(advised(refused)) from refused


@contextlib.contextmanager
def _within(call: str) -> Generator[None]:
    """Inside it, calls have the id of the tool call in their keys."""
    token = _inside.set((*_inside.get(), call))
    try:
        yield
    finally:
        _inside.reset(token)


async def process_output(call_id: str | None, own_line: str, body: Body) -> Any:
    """Call an output function, or output validators. Their inner calls are recorded; they
    themselves are not."""
    if call_id is None:  # The output is text, not a tool call.
        with step_key(own_line):
            return await _retried(body())
    with step_key(line(call_id)), _within(call_id):
        return await _retried(body())


async def _retried(called: Awaitable[Any]) -> Any:
    """Ask the model to try again, if a function that records itself requests it."""
    try:
        return await called
    except StepFailed as failed:
        if failed.outcome_unknown or failed.type_name != ModelRetry.__name__:
            raise
        raise ModelRetry(failed.message) from failed


async def _reporting_refusals(called: Awaitable[Any]) -> Any:
    """Report a rejection to the model, and the message of a tool that records itself."""
    try:
        return await called
    except Rejected as refused:
        raise ToolFailed(str(refused)) from refused
    except StepFailed as failed:
        if failed.outcome_unknown or failed.type_name not in _FOR_THE_MODEL:
            raise
        raise _FOR_THE_MODEL[failed.type_name](failed.message) from failed


_FOR_THE_MODEL: dict[str, type[ModelRetry | ToolFailed]] = {
    it.__name__: it for it in (ModelRetry, ToolFailed)
}


# --- the recorded functions ---------------------------------------------------------------------------


async def _asked(
    messages: list[dict[str, Any]],  # noqa: ARG001 - recorded
    instructions: str | None,  # noqa: ARG001 - recorded
    body: Body,
) -> Any:
    try:
        with kept():
            payload = _plain.answer(await body())
    except BaseException as error:
        if _streams.has_left():
            raise Left from error
        raise
    response = payload.get("response", payload)
    used = response.get("usage") or {}
    holdfast.context.record_usage(
        model=response.get("model_name"),
        input_tokens=used.get("input_tokens", 0),
        output_tokens=used.get("output_tokens", 0),
    )
    return payload


async def _called(
    arguments: Any,  # noqa: ARG001 - recorded
    body: Body,
    watched: Any = None,  # Not its class: the annotation decides what is recorded.
) -> Any:
    if watched is not None:
        watched.begin()
    try:
        result = await body()
    except UsageError as error:
        if not _is_ours(error):
            raise
        way_out = f'metadata={{"{METADATA}": False}}'
        raise UsageError(
            f"{error} (this tool is recorded as a whole; with {way_out} on the tool, its inner calls "
            "are recorded instead)"
        ) from error
    return result if watched is None else watched.recorded(result)


async def _called_in_step(
    arguments: Any,
    body: Body,
    watched: Any = None,  # Not its class: the annotation decides what is recorded.
) -> Any:
    with kept():
        return await _called(arguments, body, watched)


def _is_ours(error: UsageError) -> bool:
    """Return whether Holdfast refused a call, not the tool itself."""
    *_, (frame, _line) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).startswith("holdfast.")


_ask_model = as_step(
    _asked, name="model", unrecorded=("body",), raises=(CallFailed, _plain.ModelFailed)
)


@functools.lru_cache(maxsize=1024)
def _step(name: str) -> AsyncStep[..., Any]:
    made: AsyncStep[..., Any] = as_step(
        _called_in_step, name=name, unrecorded=("body", "watched"), raises=(CallFailed,)
    )
    return made


@functools.lru_cache(maxsize=1024)
def _effect(name: str) -> AsyncEffect[..., Any]:
    made: AsyncEffect[..., Any] = as_effect(
        _called, name=name, unrecorded=("body", "watched"), on_doubt="hold"
    )
    return made
