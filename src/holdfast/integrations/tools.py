"""Tools of a model with recorded calls, for loops over any provider's SDK.

    @tool
    def lookup(order: str) -> str: ...

    @tool(effect=True, needs_approval=True)
    def refund(order: str, amount: int) -> str: ...

    tools = Tools([lookup, refund])
    reply = client.chat.completions.create(…, tools=tools.openai)
    messages += tools.answer_chat(reply.choices[0].message)

All calls of one reply run in parallel, each identified by its call ID (`refund:call_17`). The model
receives errors of a tool, and errors about invalid arguments, with the same text on replay.
Anything that stops a run (an effect in doubt, a question that waits) stops it here too.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, cast, overload

import holdfast
from holdfast.adapters import as_step, step_key
from holdfast.errors import (
    ChildFailed,
    HoldfastError,
    Rejected,
    StepFailed,
    UsageError,
    WaitTimedOut,
)
from holdfast.integrations import _calls
from holdfast.integrations._calls import Protocol, ToolCall, ToolResult
from holdfast.integrations._parameters import BadArguments, Parameters, description_of
from holdfast.types import AsyncEffect, AsyncStep, Effect, Step

__all__ = ["AsyncTools", "BadArguments", "Tool", "ToolCall", "ToolResult", "Tools", "tool"]

P = ParamSpec("P")
R = TypeVar("R")
AnyStep: TypeAlias = Step[..., Any] | AsyncStep[..., Any]

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_OF_EFFECTS = {"key", "key_ttl", "on_doubt", "undo", "not_done_on", "transaction", "needs_approval"}
_TOLD = (StepFailed, ChildFailed, WaitTimedOut, Rejected)
"""Errors of Holdfast that a flow may handle: the model may handle them too."""


class Tool(Generic[P, R]):
    """A function that a model may call: recorded inside a run, plain outside of one."""

    def __init__(self, step: AnyStep, name: str, description: str, parameters: Parameters) -> None:
        self.step = step
        self.name = name
        self.description = description
        self.parameters = parameters
        functools.update_wrapper(cast("Callable[..., Any]", self), step.fn)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it as the function that it was made of."""
        return cast("R", self.step(*args, **kwargs))

    def __repr__(self) -> str:
        return f"<tool {self.name}>"

    @property
    def fn(self) -> Callable[P, R]:
        """The undecorated function."""
        return cast("Callable[P, R]", self.step.fn)

    @property
    def on_doubt(self) -> Callable[[Any], Any]:
        """Declare the function that finds out whether it happened (decorator)."""
        return self._effect("on_doubt").on_doubt

    @property
    def undo(self) -> Callable[[Any], Any]:
        """Declare the function that undoes it (decorator)."""
        return self._effect("undo").undo

    def _effect(self, what: str) -> Effect[..., Any] | AsyncEffect[..., Any]:
        if isinstance(self.step, Effect | AsyncEffect):
            return self.step
        raise UsageError(f"{self.name}.{what} is for what changes the world: @tool(effect=True)")

    def schema(self, protocol: Protocol) -> dict[str, Any]:
        """Return the definition of this tool for the provider."""
        about = {"name": self.name, "description": self.description}
        if _calls.checked(protocol) == "anthropic":
            return {**about, "input_schema": self.parameters.schema}
        told = {**about, "parameters": self.parameters.schema}
        if protocol == "openai-chat":
            return {"type": "function", "function": told}
        return {"type": "function", **told, "strict": False}

    @property
    def openai(self) -> dict[str, Any]:
        """This tool for OpenAI's chat completions."""
        return self.schema("openai-chat")

    @property
    def responses(self) -> dict[str, Any]:
        """This tool for OpenAI's responses."""
        return self.schema("openai-responses")

    @property
    def anthropic(self) -> dict[str, Any]:
        """This tool for Anthropic's messages."""
        return self.schema("anthropic")


@overload
def tool(fn: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    effect: bool = False,
    name: str | None = None,
    description: str | None = None,
    **options: Any,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    fn: Callable[..., Any] | None = None,
    /,
    *,
    effect: bool = False,
    name: str | None = None,
    description: str | None = None,
    **options: Any,
) -> Any:
    """Make a function a tool: a step, or an effect with `effect=True` or an option of effects.

    It takes the options of `@step` or `@effect` (`retry=`, `on_doubt=`, `needs_approval=`, `key=` …). The
    model's description comes from the annotations and the docstring. A function that is a step or an
    effect already keeps its own policy.
    """

    def decorate(fn: Callable[..., Any]) -> Tool[..., Any]:
        if isinstance(fn, Step | AsyncStep):
            if effect or options:
                raise UsageError(f"{fn.name} is a {_kind(fn)} already: give it its options there")
            return _made(fn, name or fn.fn.__name__, description, ())
        named = name or str(getattr(fn, "__name__", ""))
        is_effect = effect or bool(_OF_EFFECTS & options.keys())
        if is_effect:
            step = holdfast.effect(name=_checked_name(named), **options)(fn)
        else:
            step = as_step(fn, name=_checked_name(named), **options)
        return _made(step, named, description, options.get("unrecorded", ()))

    return decorate if fn is None else decorate(fn)


def _made(step: Any, name: str, description: str | None, unrecorded: Any) -> Tool[..., Any]:
    fn = step.fn
    about = description_of(fn.__doc__ or "") if description is None else description
    return Tool(step, _checked_name(name), about, Parameters(fn, name, unrecorded))


def _kind(step: AnyStep) -> str:
    return "effect" if isinstance(step, Effect | AsyncEffect) else "step"


def _checked_name(name: str) -> str:
    if _NAME.fullmatch(name):
        return name
    raise UsageError(
        f"name={name!r} of a tool: letters, digits, _ and -, at most 64; give it name="
    )


class _Toolbox:
    """The common part of `Tools` and its awaited twin."""

    def __init__(self, tools: Iterable[Callable[..., Any]]) -> None:
        made = [each if isinstance(each, Tool) else tool(each) for each in tools]
        self._tools: dict[str, Tool[..., Any]] = {each.name: each for each in made}
        if len(self._tools) < len(made):
            raise UsageError(f"two tools have one name: {sorted(each.name for each in made)}")

    def __iter__(self) -> Any:
        return iter(self._tools.values())

    def schema(self, protocol: Protocol) -> list[dict[str, Any]]:
        """Return the definitions of the tools for the provider."""
        return [each.schema(protocol) for each in self._tools.values()]

    @property
    def openai(self) -> list[dict[str, Any]]:
        """The tools for OpenAI's chat completions."""
        return self.schema("openai-chat")

    @property
    def responses(self) -> list[dict[str, Any]]:
        """The tools for OpenAI's responses."""
        return self.schema("openai-responses")

    @property
    def anthropic(self) -> list[dict[str, Any]]:
        """The tools for Anthropic's messages."""
        return self.schema("anthropic")

    def _resolved(self, call: ToolCall) -> tuple[AnyStep, dict[str, Any]]:
        """Return what to call, and with what; what cannot be called is a step that says so."""
        tool = self._tools.get(call.name)
        if tool is None:
            problem = f"there is no tool {call.name!r}; there are: {', '.join(self._tools)}"
            return _refusal("unknown_tool"), {
                "call": [_calls.storable(call.name), _calls.kept(call.arguments)],
                "problem": problem,
            }
        try:
            return tool.step, tool.parameters.read(call.arguments)
        except BadArguments as error:
            asked = [call.name, _calls.kept(call.arguments)]
            return _refusal(tool.name), {"call": asked, "problem": str(error)}


def _refusal(name: str) -> AnyStep:
    def refuse(call: Any, problem: str) -> None:
        del call
        raise BadArguments(problem)

    return as_step(refuse, name=name, unrecorded=("problem",))


def _key(call: ToolCall, place: int) -> str:
    """Return the identity of a call: its ID, or its place in the reply if the model gave it
    none."""
    return call.id or f"call_{place}"


def _result(call: ToolCall, value: Any) -> ToolResult:
    return ToolResult(call.id, _calls.text_of(value))


def _failed(call: ToolCall, error: Exception) -> ToolResult:
    """Return the result that reports an error to the model; raise an error that only a person can
    resolve."""
    if isinstance(error, StepFailed):
        tail = " (its outcome is unknown)" if error.outcome_unknown else ""
        return ToolResult(call.id, f"{error.type_name}: {error.message}{tail}", is_error=True)
    if isinstance(error, HoldfastError) and not isinstance(error, _TOLD):
        raise error
    return ToolResult(call.id, f"{type(error).__name__}: {error}", is_error=True)


class Tools(_Toolbox):
    """Tools that a model may call. The awaited twin is `tools.aio`."""

    @functools.cached_property
    def aio(self) -> AsyncTools:
        """The same tools, awaited: for async flows and programs."""
        return AsyncTools(self._tools.values())

    def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Make these calls in parallel; returns their results in order."""
        if not calls:
            return []
        if len(calls) == 1:
            return [self._call(calls[0], 1)]
        bound = [functools.partial(self._call, call, place) for place, call in enumerate(calls, 1)]
        if holdfast.context.current_run() is not None:
            return list(holdfast.gather(*bound))
        with ThreadPoolExecutor(len(bound)) as pool:
            return [each.result() for each in [pool.submit(copy_context().run, it) for it in bound]]

    def _call(self, call: ToolCall, place: int) -> ToolResult:
        step, arguments = self._resolved(call)
        try:
            with step_key(_key(call, place)):
                value = step(**arguments)
                if inspect.isawaitable(value):
                    cast("Any", value).close()
                    raise UsageError(f"{call.name} is async: `await tools.aio.answer_…(…)`")
            return _result(call, value)
        except Exception as error:
            return _failed(call, error)

    def answer_chat(self, message: Any) -> list[dict[str, Any]]:
        """Make the calls of a chat completion's message; returns the messages that answer them."""
        return [_calls.chat_result(each) for each in self.run(_calls.chat_calls(message))]

    def answer_responses(self, response: Any) -> list[dict[str, Any]]:
        """Make the function calls of a response; returns the items of input that answer them."""
        return [_calls.responses_result(it) for it in self.run(_calls.responses_calls(response))]

    def answer_messages(self, message: Any) -> dict[str, Any]:
        """Make the calls of an Anthropic message; returns the user's message that answers them."""
        return _user(self.run(_calls.messages_calls(message)))


class AsyncTools(_Toolbox):
    """The awaited twin of `Tools`. Tools that are plain functions run in threads."""

    async def run(self, calls: Sequence[ToolCall]) -> list[ToolResult]:
        """Make these calls in parallel; returns their results in order."""
        if not calls:
            return []
        if len(calls) == 1:
            return [await self._call(calls[0], 1)]
        bound = [self._call(call, place) for place, call in enumerate(calls, 1)]
        if holdfast.context.current_run() is not None:
            return list(await holdfast.aio.gather(*bound))
        return list(await asyncio.gather(*bound))

    async def _call(self, call: ToolCall, place: int) -> ToolResult:
        step, arguments = self._resolved(call)
        try:
            with step_key(_key(call, place)):
                value = await _awaited(step, arguments)
            return _result(call, value)
        except Exception as error:
            return _failed(call, error)

    async def answer_chat(self, message: Any) -> list[dict[str, Any]]:
        """Make the calls of a chat completion's message; returns the messages that answer them."""
        return [_calls.chat_result(each) for each in await self.run(_calls.chat_calls(message))]

    async def answer_responses(self, response: Any) -> list[dict[str, Any]]:
        """Make the function calls of a response; returns the items of input that answer them."""
        results = await self.run(_calls.responses_calls(response))
        return [_calls.responses_result(each) for each in results]

    async def answer_messages(self, message: Any) -> dict[str, Any]:
        """Make the calls of an Anthropic message; returns the user's message that answers them."""
        return _user(await self.run(_calls.messages_calls(message)))


def _awaited(step: AnyStep, arguments: dict[str, Any]) -> Awaitable[Any]:
    if isinstance(step, AsyncStep):
        return step(**arguments)
    if holdfast.context.current_run() is not None:
        return step.aio(**arguments)
    return asyncio.to_thread(step, **arguments)


def _user(results: Iterable[ToolResult]) -> dict[str, Any]:
    return {"role": "user", "content": [_calls.messages_result(each) for each in results]}
