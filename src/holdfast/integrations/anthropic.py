"""Anthropic's tool runner with recorded tools.

    from holdfast.integrations.anthropic import tool_runner

    runner = tool_runner(client, tools=[lookup, refund], model=…, max_tokens=…, messages=[…])
    message = runner.until_done()

It replaces `client.beta.messages.tool_runner(…)` and takes the same arguments. The runner calls the
tools of one reply one by one; here the first call starts all of them, and each is identified by its
call ID. The client's transport records model calls (`holdfast.integrations.http`). A loop of your
own needs only `holdfast.integrations.tools`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable
from typing import Any, cast, overload

from holdfast.errors import HoldfastError, UsageError
from holdfast.integrations import _calls
from holdfast.integrations._calls import ToolCall, ToolResult
from holdfast.integrations._needs import needs
from holdfast.integrations.tools import Tool, Tools

needs("anthropic", extra="anthropic")

from anthropic import Anthropic, AsyncAnthropic  # noqa: E402
from anthropic.lib.tools import (  # noqa: E402
    BetaAsyncBuiltinFunctionTool,
    BetaAsyncFunctionTool,
    BetaAsyncRunnableToolset,
    BetaBuiltinFunctionTool,
    BetaFunctionTool,
    BetaRunnableToolset,
    ToolError,
)

__all__ = ["AsyncToolRunner", "ToolRunner", "tool_runner"]

_THEIRS = (
    BetaFunctionTool,
    BetaAsyncFunctionTool,
    BetaBuiltinFunctionTool,
    BetaAsyncBuiltinFunctionTool,
    BetaRunnableToolset,
    BetaAsyncRunnableToolset,
)


@overload
def tool_runner(client: Anthropic, *, tools: Iterable[Any], **params: Any) -> ToolRunner: ...
@overload
def tool_runner(
    client: AsyncAnthropic, *, tools: Iterable[Any], **params: Any
) -> AsyncToolRunner: ...
def tool_runner(
    client: Anthropic | AsyncAnthropic, *, tools: Iterable[Any], **params: Any
) -> ToolRunner | AsyncToolRunner:
    """Run the tools that the model calls until it stops calling any, like the SDK's own.

    `tools` are functions, steps, effects or tools of Holdfast; the SDK's own kinds (definitions as
    dicts, toolsets, `beta_tool` objects) pass through unchanged and unrecorded.
    """
    if params.get("run_tools_eagerly"):
        raise UsageError(
            "run_tools_eagerly runs tools of a reply that may still be cut off and asked for again; "
            "leave it out: all tools of a reply run at the same time anyway"
        )
    given = list(tools)
    ours = [each for each in given if callable(each) and not isinstance(each, _THEIRS)]
    rest = [each for each in given if not callable(each) or isinstance(each, _THEIRS)]
    box = Tools(cast("list[Callable[..., Any]]", ours))
    turn = _Turn(box)
    if isinstance(client, AsyncAnthropic):
        awaited = [*(_AsyncTool(each, turn) for each in box), *rest]
        return AsyncToolRunner(client.beta.messages.tool_runner(tools=awaited, **params), turn)
    made = [*(_Tool(each, turn) for each in box), *rest]
    return ToolRunner(client.beta.messages.tool_runner(tools=made, **params), turn)


class _Reply:
    """The calls of one reply, and which of them the runner has asked for."""

    def __init__(self, message: Any, names: set[str]) -> None:
        answered_elsewhere = {
            _calls.get(block, "id")
            for block in message.content
            if _calls.get(block, "toolset_name") is not None
        }
        self.calls = [
            call
            for call in _calls.messages_calls(message)
            if call.name in names and call.id not in answered_elsewhere
        ]
        self._left: list[tuple[ToolCall, ToolResult]] = []

    def came(self, results: list[ToolResult]) -> None:
        """Take the results, in the order of the calls: two of them may have one id."""
        self._left = list(zip(self.calls, results, strict=True))

    def next(self, name: str) -> str:
        """The runner calls tools in the order of the reply, without naming the call."""
        for place, (call, result) in enumerate(self._left):
            if call.name == name:
                del self._left[place]
                return _content(result)
        raise UsageError(f"the runner called {name} more often than the model asked for it")


def _content(result: ToolResult) -> str:
    if result.is_error:
        raise ToolError(result.content)
    return result.content


class _Stop(BaseException):
    """Carries an error through the runner, which sends every other one to the model."""

    def __init__(self, error: HoldfastError) -> None:
        super().__init__(str(error))
        self.error = error


@contextlib.contextmanager
def _stopping() -> Generator[None]:
    """Inside a tool: let errors that only a person can resolve bypass the runner."""
    try:
        yield
    except HoldfastError as error:
        raise _Stop(error) from error


@contextlib.contextmanager
def _stopped() -> Generator[None]:
    """Around the runner: raise the errors that bypassed it."""
    try:
        yield
    except _Stop as stop:
        raise stop.error from None


class _Turn:
    """The runner's state for sync and async: its reply, and the calls of it."""

    def __init__(self, tools: Tools) -> None:
        self._tools = tools
        self._names = {each.name for each in tools}
        self._item: Any = None
        self._reply: _Reply | None = None

    def begin(self, item: Any) -> None:
        self._item, self._reply = item, None

    def call(self, name: str) -> str:
        with _stopping():
            if (reply := self._reply) is None:
                reply = self._read(self._item.get_final_message() if self._streams else self._item)
                reply.came(self._tools.run(reply.calls))
            return reply.next(name)

    async def call_awaited(self, name: str) -> str:
        with _stopping():
            if (reply := self._reply) is None:
                item = self._item
                reply = self._read(await item.get_final_message() if self._streams else item)
                reply.came(await self._tools.aio.run(reply.calls))
            return reply.next(name)

    @property
    def _streams(self) -> bool:
        return hasattr(self._item, "get_final_message")

    def _read(self, message: Any) -> _Reply:
        self._reply = _Reply(message, self._names)
        return self._reply


class _Ours:
    """A tool of Holdfast in the form of the runner's tools."""

    def __init__(self, tool: Tool[..., Any], turn: _Turn) -> None:
        self._tool, self._turn = tool, turn

    def to_dict(self) -> Any:
        return self._tool.anthropic


class _Tool(_Ours, BetaBuiltinFunctionTool):
    def call(self, input: object) -> str:
        del input  # It is in the reply, beside the call's ID.
        return self._turn.call(self._tool.name)


class _AsyncTool(_Ours, BetaAsyncBuiltinFunctionTool):
    async def call(self, input: object) -> str:
        del input
        return await self._turn.call_awaited(self._tool.name)


class _Runner:
    """The SDK's part of both runners."""

    def __init__(self, runner: Any, turn: _Turn) -> None:
        self._runner, self._turn = runner, turn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._runner, name)


class ToolRunner(_Runner):
    """The SDK's runner with all its methods."""

    def __iter__(self) -> ToolRunner:
        return self

    def __next__(self) -> Any:
        with _stopped():
            item = next(self._runner)
        self._turn.begin(item)
        return item

    def until_done(self) -> Any:
        """Run to the end, and return the last message."""
        for item in self:
            if hasattr(item, "until_done"):
                item.until_done()
        return self._runner.until_done()

    def generate_tool_call_response(self) -> Any:
        """Run the tools of the last reply, and return the message that answers them."""
        with _stopped():
            return self._runner.generate_tool_call_response()


class AsyncToolRunner(_Runner):
    """The awaited twin of `ToolRunner`."""

    def __aiter__(self) -> AsyncToolRunner:
        return self

    async def __anext__(self) -> Any:
        with _stopped():
            item = await anext(self._runner)
        self._turn.begin(item)
        return item

    async def until_done(self) -> Any:
        """Run to the end, and return the last message."""
        async for item in self:
            if hasattr(item, "until_done"):
                await item.until_done()
        return await self._runner.until_done()

    async def generate_tool_call_response(self) -> Any:
        """Run the tools of the last reply, and return the message that answers them."""
        with _stopped():
            return await self._runner.generate_tool_call_response()
