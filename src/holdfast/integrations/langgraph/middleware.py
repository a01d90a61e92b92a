"""`DurableMiddleware`: inside a run, record each model call and each tool call of an agent.

    create_agent(model, tools, middleware=[…, DurableMiddleware()])

Put it last, next to the model and the tools: decisions of middleware before it are made again on a
resume, and calls behind it are recorded. Outside a run it passes everything through.

A model call is identified by its place in the graph: agent, namespace and step number. LangGraph
counts steps on from its checkpoint, so the key is the same whether the graph runs again from its
start or continues from a checkpoint. A tool call is identified by the ID that the model gave it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Awaitable, Callable, Generator, Sequence
from typing import Any

import holdfast
from holdfast.integrations._needs import needs

needs("langchain", extra="langgraph")

from langchain.agents.middleware import AgentMiddleware  # noqa: E402 - `needs` comes first
from langchain.agents.middleware.types import (  # noqa: E402
    ModelRequest,
    ModelResponse,
    ToolCallRequest,
)
from langchain_core.messages import BaseMessage  # noqa: E402
from langgraph.errors import GraphBubbleUp  # noqa: E402

from holdfast.errors import StepFailed, UsageError  # noqa: E402
from holdfast.integrations.langgraph import places, plain_messages  # noqa: E402

RECORDED = (holdfast.types.Step, holdfast.types.AsyncStep)
EFFECTS = (holdfast.types.Effect, holdfast.types.AsyncEffect)


class Bubbled(GeneratorExit):
    """An exception that LangGraph sends through its nodes (an interrupt) is no outcome of a step:
    the call is made again when the graph continues. Like an exit it passes, and nothing is
    recorded. So does the refusal of a call that was not made."""

    def __init__(self, bubble: Exception) -> None:
        super().__init__()
        self.bubble = bubble


class DurableMiddleware(AgentMiddleware[Any, Any, Any]):
    """Records the model calls and tool calls of an agent, inside a run.

    A tool that is a plain function becomes a step. One whose function is a Holdfast step or effect
    keeps its policy. `effects=` names tools that hide their function: an effect object that the
    tool of its name calls, or the name of a tool to record as an effect, where a person decides
    about doubt. `agents=` names tools that call an agent of their own: its calls are recorded one
    by one, and the tool itself is not.
    """

    def __init__(self, *, effects: Sequence[Any] = (), agents: Sequence[str] = ()) -> None:
        super().__init__()
        self.tools = []
        self._own: set[str] = set()
        self._as_effects: set[str] = set()
        self._agents = frozenset(agents)
        for each in effects:
            if isinstance(each, EFFECTS):
                self._own.add(each.name)
            elif isinstance(each, str):
                self._as_effects.add(each)
            else:
                raise UsageError(
                    f"effects={each!r}: an effect (@holdfast.effect), or the name of a tool"
                )

    # --- model calls ----------------------------------------------------------------------------

    def wrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], ModelResponse[Any]]
    ) -> ModelResponse[Any]:
        """Record a model call."""
        if holdfast.context.current_run() is None:
            return handler(request)

        def call() -> plain_messages.Data:
            response = handler(request)
            return _used(plain_messages.response_data(response, request.response_format))

        with _unwrapped(), holdfast.adapters.step_key(places.model_call(), unique=True):
            data = _model(**_asked(request), call=call)
        return plain_messages.response_from(data, request.response_format)

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Record a model call that is awaited."""
        if holdfast.context.current_run() is None:
            return await handler(request)

        async def call() -> plain_messages.Data:
            response = await handler(request)
            return _used(plain_messages.response_data(response, request.response_format))

        with _unwrapped(), holdfast.adapters.step_key(places.model_call(), unique=True):
            data = await _amodel(**_asked(request), call=call)
        return plain_messages.response_from(data, request.response_format)

    # --- tool calls -----------------------------------------------------------------------------

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Any]
    ) -> Any:
        """Record a tool call."""
        if holdfast.context.current_run() is None:
            return handler(request)
        with self._around(request) as recording:
            if recording is None:
                return handler(request)

            def call(args: Any) -> plain_messages.Data:  # noqa: ARG001  # Recorded.
                with _bubbling():
                    return plain_messages.outcome_data(handler(request))

            step = recording(call)
            return plain_messages.outcome_from(step(request.tool_call["args"]))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Record a tool call that is awaited."""
        if holdfast.context.current_run() is None:
            return await handler(request)
        with self._around(request) as recording:
            if recording is None:
                return await handler(request)

            async def call(args: Any) -> plain_messages.Data:  # noqa: ARG001  # Recorded.
                with _bubbling():
                    return plain_messages.outcome_data(await handler(request))

            step = recording(call)
            return plain_messages.outcome_from(await step(request.tool_call["args"]))

    @contextlib.contextmanager
    def _around(
        self, request: ToolCallRequest
    ) -> Generator[Callable[[Callable[..., Any]], Any] | None]:
        """Give the call its key, and return how to record it: None if its inner calls are
        recorded."""
        name = request.tool_call["name"]
        call_id = request.tool_call["id"] or places.model_call()
        if name in self._agents:
            with places.within(call_id):
                yield None
            return
        with (
            _unwrapped(),
            _explained(name),
            holdfast.adapters.step_key(call_id, unique=True, awaited=True),
        ):
            if name in self._own or _is_recorded(request.tool):
                yield None
            else:
                is_effect = name in self._as_effects
                record = holdfast.adapters.as_effect if is_effect else holdfast.adapters.as_step
                yield functools.partial(record, name=_name(name))


def _model_body(
    messages: list[plain_messages.Data],  # Recorded: the model's request.
    model: str,  # noqa: ARG001
    tools: list[str],  # noqa: ARG001
    call: Callable[[], plain_messages.Data],
) -> plain_messages.Data:
    with _alone(messages), _bubbling():
        return call()


async def _amodel_body(
    messages: list[plain_messages.Data],
    model: str,  # noqa: ARG001
    tools: list[str],  # noqa: ARG001
    call: Callable[[], Awaitable[plain_messages.Data]],
) -> plain_messages.Data:
    with _alone(messages), _bubbling():
        return await call()


_model = holdfast.adapters.as_step(_model_body, name="model", unrecorded=("call",))
_amodel = holdfast.adapters.as_step(_amodel_body, name="model", unrecorded=("call",))


def _asked(request: ModelRequest[Any]) -> dict[str, Any]:
    """The identity of a model call: its request and its model."""
    messages: list[BaseMessage] = list(request.messages)
    if request.system_message is not None:
        messages.insert(0, request.system_message)
    model: Any = request.model
    return {
        "messages": plain_messages.conversation(messages),
        "model": str(getattr(model, "model_name", None) or getattr(model, "model", "")),
        "tools": [_tool_name(tool) for tool in request.tools],
    }


def _used(data: plain_messages.Data) -> plain_messages.Data:
    """Record the usage of the call."""
    for message in data["messages"]:
        usage = message.get("usage_metadata")
        if usage:
            holdfast.context.record_usage(
                model=message.get("response_metadata", {}).get("model_name"),
                input_tokens=usage.get("input_tokens", 0),
                output_tokens=usage.get("output_tokens", 0),
            )
    return data


@contextlib.contextmanager
def _bubbling() -> Generator[None]:
    """Inside a step: let an interrupt of the graph pass through, unrecorded."""
    try:
        yield
    except GraphBubbleUp as bubble:
        raise Bubbled(bubble) from bubble


@contextlib.contextmanager
def _alone(asked: Any) -> Generator[None]:
    """Inside a model call: refuse another one that it could be taken for, unrecorded."""
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(places.alone(asked))
        except UsageError as refused:
            raise Bubbled(refused) from refused
        yield


@contextlib.contextmanager
def _unwrapped() -> Generator[None]:
    """Outside the step: raise the interrupt again."""
    try:
        yield
    except Bubbled as bubbled:
        raise bubbled.bubble from None


@contextlib.contextmanager
def _explained(name: str) -> Generator[None]:
    """Add advice to the error of an effect that is called in a tool that is a step."""
    try:
        yield
    except StepFailed as failed:
        if failed.type_name != "UsageError" or "effect" not in failed.message:
            raise
        raise UsageError(
            f"{failed.message}. The tool {name!r} is a step, and calls an effect: make the effect "
            f"itself the tool, or, if the tool has the name of the effect and does nothing else, "
            f"give it to DurableMiddleware(effects=[…])"
        ) from failed


def _is_recorded(tool: Any) -> bool:
    functions = (getattr(tool, "func", None), getattr(tool, "coroutine", None))
    return any(isinstance(function, RECORDED) for function in functions)


def _tool_name(tool: Any) -> str:
    if isinstance(tool, dict):
        return str(tool.get("name") or tool.get("function", {}).get("name") or tool.get("type"))
    return str(tool.name)


def _name(tool: str) -> str:
    """Return a tool's name without the characters of step keys."""
    return "".join("_" if char in "/#[]:" else char for char in tool)
