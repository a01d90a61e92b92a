"""Tool calls as steps and effects, identified by their tool call id.

A tool is recorded as a whole: with its time limit, and with the text that the SDK makes of its
error. So the model sees the same text again on replay. A tool whose function is a step or an effect
already keeps its own policy; an agent that is a tool is not recorded as one call, but its own model
and tool calls are.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agents import FunctionTool
from agents.tool_context import ToolContext
from pydantic import BaseModel, ValidationError

import holdfast
from holdfast.errors import NotSerializable, UsageError
from holdfast.integrations._names import fitting
from holdfast.integrations._recorded_errors import CallFailed, as_itself, kept
from holdfast.integrations._run_context import Watched, advised, restoring, takes_context
from holdfast.integrations.openai_agents._lines import inside, line

Effects = Sequence[holdfast.types.Effect[..., Any] | holdfast.types.AsyncEffect[..., Any] | str]
Invoke = Callable[..., Awaitable[Any]]
_OWN = (
    holdfast.types.Step,
    holdfast.types.AsyncStep,
    holdfast.types.Effect,
    holdfast.types.AsyncEffect,
)
_ERROR = "error"
"""The mark of an output that the SDK made from an error. Other outputs are never tuples."""
_DEPTH = 30
"""Deeper data is recorded as the text that the model receives."""
_PLAIN = (str, int, float, bool, type(None))


class Tools:
    """Invokes tools, recorded inside a run.

    `invoke` is the SDK's function that invokes tools, and `result` the class of its return value.
    """

    def __init__(self, invoke: Invoke, result: Callable[..., Any], effects: Effects) -> None:
        self._invoke = invoke
        self._result = result
        self._named = {it for it in effects if isinstance(it, str)}
        own = [it for it in effects if not isinstance(it, str)]
        self._own = {it.name for it in own} | {it.fn.__name__ for it in own}

    async def invoke(
        self, *, function_tool: FunctionTool, context: ToolContext[Any], arguments: str
    ) -> Any:
        """Invoke a tool, or return the recorded result."""

        def call() -> Awaitable[Any]:
            return self._invoke(function_tool=function_tool, context=context, arguments=arguments)

        if holdfast.context.current_run() is None:
            return await call()
        call_id = context.tool_call_id
        if getattr(function_tool, "_is_agent_tool", False):
            with inside(call_id):
                return await call()
        watched = Watched(function_tool.name, context.context)
        with holdfast.adapters.step_key(line(call_id), awaited=True), watched.refusals():
            if self._is_own(function_tool):
                function = getattr(function_tool, "__wrapped__", None)
                if isinstance(function, _OWN) and takes_context(function):
                    return await restoring(function_tool.name, context.context, call)
                return await call()
            recorded = self._recorded(function_tool)
            called = recorded(_parsed(arguments), call=call, tool=function_tool, watched=watched)
            told = watched.replayed(await as_itself(called))
        if isinstance(told, tuple):
            return self._result(told[1], True)
        return self._result(_rebuilt(function_tool, told), False)

    def _is_own(self, tool: FunctionTool) -> bool:
        """Return whether the function of a tool records itself."""
        return tool.name in self._own or isinstance(getattr(tool, "__wrapped__", None), _OWN)

    def _recorded(self, tool: FunctionTool) -> Any:
        unrecorded = ("call", "tool", "watched")
        name = fitting(tool.name)
        if tool.name not in self._named:
            return holdfast.adapters.as_step(
                _step, name=name, unrecorded=unrecorded, raises=(CallFailed,)
            )
        return holdfast.adapters.as_effect(_effect, name=name, unrecorded=unrecorded)


async def _step(
    arguments: Any,  # noqa: ARG001 - it is recorded
    call: Callable[[], Awaitable[Any]],
    tool: FunctionTool,
    watched: Any,  # Not its class: what is recorded is known by its annotation.
) -> Any:
    watched.begin()
    with kept():
        result = await call()
    if result.is_sdk_generated_error:
        return watched.recorded((_ERROR, str(result.output)))
    return watched.recorded(_plain(tool, result.output))


async def _effect(
    arguments: Any,  # noqa: ARG001 - it is recorded
    call: Callable[[], Awaitable[Any]],
    tool: FunctionTool,
    watched: Any,  # Not its class: what is recorded is known by its annotation.
) -> Any:
    watched.begin()
    result = await call()
    if result.is_sdk_generated_error:  # It may have happened nevertheless.
        raise RuntimeError(result.output)
    return watched.recorded(_plain(tool, result.output))


def _parsed(arguments: str) -> Any:
    """Parse the model's arguments, which may be invalid JSON."""
    try:
        return json.loads(arguments) if arguments else {}
    except ValueError:
        return arguments


def _plain(tool: FunctionTool, output: Any) -> Any:
    """Return the output of a tool as plain data that the model receives as the same text."""
    adapter = getattr(tool, "_output_type_adapter", None)
    if adapter is not None:
        return adapter.dump_python(output, mode="json", warnings=False)
    parts = [_part(part) for part in output] if isinstance(output, list) else _part(output)
    return parts if _is_plain(parts) else str(output)


def _rebuilt(tool: FunctionTool, output: Any) -> Any:
    adapter = getattr(tool, "_output_type_adapter", None)
    if adapter is None:
        return output
    try:
        return adapter.validate_python(output)
    except ValidationError:  # The SDK reports the problem.
        return output


def _part(output: Any) -> Any:
    """Return a part as a dictionary, which the SDK accepts for its output classes (text, image,
    file)."""
    known = isinstance(output, BaseModel) and type(output).__module__.startswith("agents.")
    return output.model_dump(mode="json", exclude_none=True) if known else output


def _is_plain(value: Any, depth: int = _DEPTH) -> bool:
    if isinstance(value, dict) and depth:
        return all(isinstance(key, str) and _is_plain(it, depth - 1) for key, it in value.items())
    if isinstance(value, list) and depth:
        return all(_is_plain(it, depth - 1) for it in value)
    return type(value) in _PLAIN


def checked(effects: Effects) -> Effects:
    """Return the effects, if they are effects of Holdfast or names of tools."""
    for it in effects:
        if not isinstance(it, (holdfast.types.Effect, holdfast.types.AsyncEffect, str)):
            raise UsageError(
                f"effects=[{it!r}]: give the effect that the tool calls, or the name of a tool to "
                "record as an effect"
            )
    return effects


def check_error(error: Exception) -> None:
    """Raise an error of the program: it is not for the model."""
    if isinstance(error, NotSerializable):
        raise UsageError(advised(error)) from error
    if isinstance(error, UsageError):
        raise UsageError(
            f"{error}. If a tool calls an effect: make the tool of the effect itself, "
            "function_tool(pay), or give the tool its name and write install_durable_runner(effects=[pay])"
        ) from error
