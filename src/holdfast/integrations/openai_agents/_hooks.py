"""The hooks into the SDK: four of its functions are replaced.

`get_model` returns the model of an agent, from the agent, the run's settings or a provider.
`_invoke_function_tool_with_metadata` invokes each function tool and MCP tool, of any agent and
added at any time. `maybe_invoke_function_tool_failure_error_function` turns an error into a text
for the model. `ChatCmplStreamHandler.handle_stream` turns the stream of a chat completions provider
into events. No agent and no tool is copied. Two more functions are called: they make the errors of
streams that end without an answer. The names are private to the SDK: they are checked before one of
them is replaced, and a release without them is refused.
"""

from __future__ import annotations

import asyncio
import functools
import importlib
import inspect
from collections.abc import AsyncIterator, Callable
from importlib.metadata import version
from typing import Any, Literal

from agents import Agent, Model, ModelBehaviorError, ModelResponse, RunConfig
from agents.items import TResponseStreamEvent
from agents.run import AgentRunner, get_default_agent_runner, set_default_agent_runner
from pydantic_core import to_jsonable_python

import holdfast
from holdfast.errors import UsageError
from holdfast.integrations._names import fitting
from holdfast.integrations._recorded_errors import CallFailed, as_itself, kept
from holdfast.integrations.openai_agents._answers import plain_response, rebuilt_response
from holdfast.integrations.openai_agents._approvals import AskingRunner
from holdfast.integrations.openai_agents._lines import line
from holdfast.integrations.openai_agents._model_streams import Asking, Ended, finished, streamed
from holdfast.integrations.openai_agents._provider import ModelCallFailed, note_usage
from holdfast.integrations.openai_agents._tool_calls import Effects, Tools, check_error, checked

_RUN_LOOP = "agents.run_internal.run_loop"
_EXECUTION = "agents.run_internal.tool_execution"
_TOOL = "agents.tool"
_CHAT = "agents.models.chatcmpl_stream_handler"
_TERMINAL = "agents.models._response_terminal"

_GET_MODEL = "get_model"
_INVOKE = "_invoke_function_tool_with_metadata"
_EXPLAIN = "maybe_invoke_function_tool_failure_error_function"
_HANDLE = "handle_stream"
_RESULT = "_FunctionToolInvocationResult"

_TESTED = "from 0.20 on, last with 0.24"


def install_durable_runner(
    *, effects: Effects = (), approvals: Literal["ask"] | None = None
) -> None:
    """Make `Runner.run`, `run_sync` and `run_streamed` durable inside runs of Holdfast.

    Call it once, at the start of the program; another call replaces the options.

    `effects`: tools with side effects. A tool whose function is an `@effect` is detected
    automatically. If a tool calls an effect inside, give that effect here. To record a whole tool
    (of an MCP server, for example) as an effect that is held when its outcome is unknown, give its
    name.

    `approvals="ask"`: interruptions of `Runner.run` and `run_sync` become questions to people.
    Otherwise the program handles them.
    """
    runner = _runner(approvals)
    original = _Originals.get()
    tools = Tools(original.invoke, original.result, checked(effects))

    def get_model(agent: Agent[Any], run_config: RunConfig) -> Model:
        model: Model = original.get_model(agent, run_config)
        if holdfast.context.current_run() is None:
            return model
        return DurableModel(model, agent.name, original.ended)

    async def explain(*, function_tool: Any, context: Any, error: Exception) -> str | None:
        check_error(error)
        told: str | None = await original.explain(
            function_tool=function_tool, context=context, error=error
        )
        return told

    def handle_stream(cls: Any, response: Any, stream: Any, *args: Any, **kwargs: Any) -> Any:
        # A generator is already converted by the SDK, and lacks the finish reasons.
        if holdfast.context.current_run() is not None and not inspect.isasyncgen(stream):
            stream = finished(stream)
        return original.handle(cls, response, stream, *args, **kwargs)

    setattr(original.handler, _HANDLE, classmethod(handle_stream))
    setattr(_module(_RUN_LOOP), _GET_MODEL, get_model)
    setattr(_module(_TOOL), _EXPLAIN, explain)
    setattr(_module(_EXECUTION), _INVOKE, tools.invoke)
    set_default_agent_runner(runner)


def _runner(approvals: str | None) -> AgentRunner:
    """Return the new default runner. The program's own runner stays; it cannot be replaced by one
    that asks."""
    found = get_default_agent_runner()
    own = type(found) not in {AgentRunner, AskingRunner}
    if approvals != "ask":
        return found if own else AgentRunner()
    if own:
        raise UsageError(
            f'approvals="ask" would replace your own default runner, {type(found).__name__}; leave '
            "approvals out, and let your runner continue with the state that ask_people(result) returns"
        )
    return AskingRunner()


class _Originals:
    """The original functions of the SDK."""

    _kept: _Originals | None = None

    def __init__(self) -> None:
        self.get_model = _function(_RUN_LOOP, _GET_MODEL, ("agent", "run_config"))
        self.invoke = _function(_EXECUTION, _INVOKE, ("function_tool", "context", "arguments"))
        self.explain = _function(_TOOL, _EXPLAIN, ("function_tool", "context", "error"))
        self.handler, self.handle = _handler()
        self.result = _function(
            self.invoke.__module__, _RESULT, ("output", "is_sdk_generated_error")
        )
        of_response = ("event_type", "response")
        self._failure = _function(_TERMINAL, "response_terminal_failure_error", of_response)
        of_event = ("event_type", "event")
        self._error = _function(_TERMINAL, "response_error_event_failure_error", of_event)

    def ended(self, event: Any) -> Exception:
        """Return the SDK's error for an event that ends a stream without an answer."""
        if hasattr(event, "response"):
            failure: Exception = self._failure(event.type, event.response)
            return failure
        error: Exception = self._error(event.type, event)
        return error

    @classmethod
    def get(cls) -> _Originals:
        """Return the originals; they are looked up once, before they are replaced."""
        cls._kept = cls._kept or cls()
        return cls._kept


def _handler() -> tuple[Any, Any]:
    """Return the class that reads streams of chat completions, and its method."""
    handler = getattr(_module(_CHAT), "ChatCmplStreamHandler", None)
    found = getattr(getattr(handler, _HANDLE, None), "__func__", None)
    begins = ("cls", "response", "stream")
    if found is None or tuple(inspect.signature(found).parameters)[:3] != begins:
        raise _missing(_CHAT, _HANDLE, begins)
    return handler, found


def _function(module: str, name: str, parameters: tuple[str, ...]) -> Any:
    found = getattr(_module(module), name, None)
    if found is None or tuple(inspect.signature(found).parameters) != parameters:
        raise _missing(module, name, parameters)
    return found


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        return None


def _missing(module: str, name: str, parameters: tuple[str, ...]) -> ImportError:
    return ImportError(
        f"openai-agents {version('openai-agents')} has no {module}.{name}({', '.join(parameters)}); "
        f"this Holdfast is tested with openai-agents {_TESTED}: install one of those, or a newer "
        "Holdfast"
    )


# -- model calls -------------------------------------------------------------------------------
# Model calls as steps.
#
# The request is recorded as plain data: instructions, items, and the previous response or
# conversation. Settings, tools and clients are omitted: they may change between a crash and the
# resume, and may contain secrets. The answer is recorded as plain data too, and rebuilt from it
# both live and on replay.


class DurableModel(Model):
    """A model whose calls are steps of the current run.

    `agent` is the name of the calling agent, and the key of its line; `ended` makes the SDK's error
    of a stream that ended without an answer. The object is created in the calling task. All other
    attributes are those of the wrapped model.
    """

    def __init__(self, inner: Model, agent: str, ended: Ended) -> None:
        self._inner = inner
        self._agent = fitting(agent)
        self._ended = ended
        self._asker = asyncio.current_task()

    def __getattr__(self, name: str) -> Any:
        """Return the attribute of the wrapped model."""
        return getattr(self._inner, name)

    async def close(self) -> None:
        """Close the wrapped model."""
        await self._inner.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        # The SDK calls it when an agent's run ends; the base class has a default.
        await self._inner._cleanup_on_run_end(owner)

    def get_retry_advice(self, request: Any) -> Any:
        """Return the advice of the wrapped model."""
        return self._inner.get_retry_advice(request)

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        """Ask the model, or return its recorded answer."""
        ask = functools.partial(self._inner.get_response, system_instructions, input)
        with holdfast.adapters.step_key(line(self._agent)):
            answer = await as_itself(
                _respond(
                    _asked(system_instructions, input, kwargs),
                    call=lambda: ask(*args, **kwargs),
                    model=_name(self._inner),
                )
            )
        return rebuilt_response(answer)

    def stream_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Ask the model and yield its events, or yield the recorded events."""
        ask = functools.partial(self._inner.stream_response, system_instructions, input)
        asking = Asking(lambda: ask(*args, **kwargs), _name(self._inner), self._asker)
        asked = _asked(system_instructions, input, kwargs)
        return streamed(line(self._agent), asked, asking, self._ended)


def _asked(instructions: str | None, items: Any, beside: dict[str, Any]) -> dict[str, Any]:
    """Return the identity of a model call, as plain data."""
    before = {
        name: to_jsonable_python(beside[name])
        for name in ("previous_response_id", "conversation_id", "prompt")
        if beside.get(name) is not None
    }
    return {"instructions": instructions, "input": to_jsonable_python(items), "before": before}


async def _respond_now(asked: Any, call: Callable[[], Any], model: str | None) -> Any:  # noqa: ARG001 - it is recorded
    with kept():
        response: ModelResponse = await call()
    note_usage(model, response.usage)
    return plain_response(response)


_respond = holdfast.adapters.as_step(
    _respond_now,
    name="model",
    unrecorded=("call", "model"),
    raises=(CallFailed, ModelCallFailed, ModelBehaviorError),  # Earlier versions: the latter two.
)


def _name(model: Model) -> str | None:
    """Return the name of a model for its calls and prices, from the SDK's model object."""
    name = getattr(model, "model", None)
    return name if isinstance(name, str) else None
