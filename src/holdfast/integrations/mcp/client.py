"""A client of MCP servers whose calls are recorded in the run that makes them.

A server's tool may have side effects that this client cannot know. So by default each tool is an
effect that asks a person when its outcome is unknown. `steps=` names tools that are safe to repeat;
`effects=` declares policies for others. A server's hints about its own tools count only with
`hints=True`. A hint is recorded beside each call, before the call and in the same scope. So a run
that resumes inside a loop or branch finds both, and a later hint cannot turn an effect in doubt
into a step that is repeated.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from mcp import MCPError
from mcp_types import (
    HEADER_MISMATCH,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    MISSING_REQUIRED_CLIENT_CAPABILITY,
    PARSE_ERROR,
    UNSUPPORTED_PROTOCOL_VERSION,
    URL_ELICITATION_REQUIRED,
    CallToolResult,
    ErrorData,
    GetPromptResult,
    ListToolsResult,
    PaginatedRequestParams,
    ReadResourceResult,
    Result,
    Tool,
)

import holdfast
from holdfast.errors import UsageError
from holdfast.integrations._names import fitting

KEY_META = "holdfast/idempotency-key"
"""The field of a call's `_meta` with the idempotency key. The prefix is a single label, because
Holdfast has no domain of its own for a longer one."""

REFUSED = frozenset(
    {
        HEADER_MISMATCH,
        INVALID_PARAMS,
        INVALID_REQUEST,
        METHOD_NOT_FOUND,
        MISSING_REQUIRED_CLIENT_CAPABILITY,
        PARSE_ERROR,
        UNSUPPORTED_PROTOCOL_VERSION,
        URL_ELICITATION_REQUIRED,
    }
)
"""Errors with which a server reports that it did not call the tool. They are answers, and recorded
as such."""
PAGES_MAX, RUNS_KEPT = 100, 1000

R = TypeVar("R", bound=Result)
Plain = dict[str, Any]
Effects = Iterable[str] | Mapping[str, Mapping[str, Any]]


def durable(
    client: Any,
    *,
    effects: Effects = (),
    steps: Iterable[str] = (),
    hints: bool = False,
    reads: bool = True,
    name: str = "mcp",
    key_meta: str = KEY_META,
) -> DurableClient:
    """Return a client whose calls are recorded inside a run; outside a run it behaves like the
    client itself.

    `client` is a `Client` or a `ClientSession`. `steps` names tools that are safe to repeat.
    `effects` names others, or maps them to options of `@effect`:
    `{"refund": {"on_doubt": look_at_bank, "needs_approval": True}}`; functions receive the
    arguments of the tool. Any other tool is an effect with `on_doubt="hold"`. With `hints=True`, a
    tool that its server marks read-only or idempotent is a step.

    `reads=False` leaves `list_tools`, `read_resource` and `get_prompt` unrecorded. `name`
    distinguishes several clients of one run. `key_meta` is the field of `_meta` for the idempotency
    key.
    """
    return DurableClient(
        client,
        effects=effects,
        steps=steps,
        hints=hints,
        reads=reads,
        name=name,
        key_meta=key_meta,
    )


class DurableClient:
    """A client of an MCP server, recorded inside runs. Other attributes are those of the client."""

    def __init__(
        self,
        client: Any,
        *,
        effects: Effects = (),
        steps: Iterable[str] = (),
        hints: bool = False,
        reads: bool = True,
        name: str = "mcp",
        key_meta: str = KEY_META,
    ) -> None:
        if isinstance(effects, str) or isinstance(steps, str):
            raise UsageError("effects= and steps= must be lists of tool names")
        options = effects if isinstance(effects, Mapping) else {tool: {} for tool in effects}
        self.client = client
        self.name = name
        self._effects = {tool: dict(given) for tool, given in options.items()}
        self._steps = frozenset(steps)
        self._hints = hints
        self._reads = reads
        self._key_meta = key_meta
        self._harmless: dict[str, frozenset[str]] = {}
        self._asking = asyncio.Lock()
        if both := sorted(self._steps & set(self._effects)):
            raise UsageError(f"{', '.join(both)}: a tool cannot be both a step and an effect")

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Close the client. An exception of the block is raised unchanged, not in a group: callers
        must recognize a stopped run."""
        try:
            ended: bool | None = await self.client.__aexit__(kind, error, trace)
        except BaseExceptionGroup as group:
            if error is not None and _only(group) is error:
                return False
            raise
        return ended

    # -- recorded calls ------------------------------------------------------------------------

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *positional: Any,
        call_id: str | None = None,
        meta: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> CallToolResult:
        """Call a tool. `call_id` is the model's id of this call: with it, calls may run in parallel
        and in any order; without it, their position in the flow identifies them."""
        if holdfast.context.current_run() is None:
            given = None if arguments is None else dict(arguments)
            result: CallToolResult = await self.client.call_tool(
                name, given, *positional, meta=meta, **options
            )
            return result

        asked = dict(arguments or {})
        own = _free(asked) if "self" in asked else None
        if own is not None:
            asked[own] = asked.pop("self")

        async def call(**arguments: Any) -> Plain:
            if own is not None:
                arguments["self"] = arguments.pop(own)
            sent = {**(meta or {}), self._key_meta: holdfast.idempotency_key()}
            return await _answer(
                self.client.call_tool(name, arguments, *positional, meta=sent, **options)
            )

        made = await self._recorded(name, call, call_id)
        with holdfast.adapters.step_key(call_id) if call_id else contextlib.nullcontext():
            kept = await made(**asked)
        return _answer_of(CallToolResult, kept)

    async def list_tools(self, **options: Any) -> ListToolsResult:
        """List the tools of the server; inside a run, the recorded list."""
        params = options.get("params")
        cursor = options.get("cursor", None if params is None else params.cursor)
        return await self._read(
            ListToolsResult, "list_tools", {"cursor": cursor}, self.client.list_tools, (), options
        )

    async def read_resource(self, uri: str, **options: Any) -> ReadResourceResult:
        """Read a resource; inside a run, the recorded content."""
        asked = {"uri": str(uri)}
        return await self._read(
            ReadResourceResult, "read_resource", asked, self.client.read_resource, (uri,), options
        )

    async def get_prompt(
        self, name: str, arguments: dict[str, str] | None = None, **options: Any
    ) -> GetPromptResult:
        """Get a prompt; inside a run, the recorded one."""
        asked = {"name": name, "arguments": arguments}
        given = (name, arguments)
        return await self._read(
            GetPromptResult, "get_prompt", asked, self.client.get_prompt, given, options
        )

    # -- recording -----------------------------------------------------------------------------

    async def _recorded(
        self, tool: str, call: Callable[..., Awaitable[Plain]], call_id: str | None
    ) -> Any:
        """Return the call as a step or an effect."""
        named = fitting(tool)
        if tool in self._steps:
            return holdfast.adapters.as_step(call, name=named)
        if tool not in self._effects and self._hints and await self._is_hinted(tool, call_id):
            return holdfast.adapters.as_step(call, name=named)
        if _in_step():
            raise UsageError(
                f"the MCP tool {tool} is an effect and was called inside a step, where it would "
                f"have no record of its own; call it in the flow. If it is safe to repeat, name it "
                f"in durable(…, steps=[{tool!r}]); inside an @effect of your own, use the bare "
                f"client: meta={{KEY_META: holdfast.idempotency_key()}}"
            )
        return holdfast.adapters.as_effect(call, name=named, **self._effects.get(tool, {}))

    async def _read(
        self,
        kind: type[R],
        name: str,
        asked: Plain,
        read: Callable[..., Awaitable[R]],
        given: tuple[Any, ...],
        options: Plain,
    ) -> R:
        if not self._reads or holdfast.context.current_run() is None:
            return await read(*given, **options)

        async def call(**_: Any) -> Plain:
            return await _answer(read(*given, **options))

        return _answer_of(kind, await holdfast.adapters.as_step(call, name=name)(**asked))

    async def _is_hinted(self, tool: str, call_id: str | None) -> bool:
        """Return whether the server marked a tool harmless before the first attempt of this
        call."""

        async def ask(tool: str) -> bool:
            return tool in await self._hinted()

        with holdfast.adapters.step_key(
            fitting(f"{self.name}.{call_id}" if call_id else self.name)
        ):
            said = await holdfast.adapters.as_step(ask, name=f"tool_hints.{fitting(tool)}")(tool)
        return bool(said)

    async def _hinted(self) -> frozenset[str]:
        """Return the tools that the server marks harmless; a process asks once for each run."""
        run = holdfast.context.current_run()
        assert run is not None
        async with self._asking:
            known = self._harmless.get(run.run_id)
            if known is None:
                known = frozenset(await self._ask_hints())
                while len(self._harmless) >= RUNS_KEPT:
                    del self._harmless[next(iter(self._harmless))]
                self._harmless[run.run_id] = known
        return known

    async def _ask_hints(self) -> list[str]:
        names: list[str] = []
        cursor: str | None = None
        for _ in range(PAGES_MAX):
            page = await self._page(cursor)
            names += [tool.name for tool in page.tools if _is_harmless(tool)]
            cursor = page.next_cursor
            if cursor is None:
                break
        return names

    async def _page(self, cursor: str | None) -> ListToolsResult:
        session = getattr(self.client, "session", self.client)  # A ClientSession is its own.
        params = None if cursor is None else PaginatedRequestParams(cursor=cursor)
        page: ListToolsResult = await session.list_tools(params=params)
        return page


async def _answer(asked: Awaitable[Result]) -> Plain:
    """Return the answer of a server as plain data; a refusal is an answer too."""
    try:
        result = await asked
    except MCPError as error:
        if error.code not in REFUSED:
            raise
        return {"error": error.error.model_dump(mode="json", exclude_none=True)}
    said: Plain = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    return said


def _answer_of(kind: type[R], kept: Plain) -> R:
    """Return a recorded answer in the type that the client returns."""
    if set(kept) == {"error"}:
        error = ErrorData.model_validate(kept["error"])
        raise MCPError(error.code, error.message, error.data)
    return kind.model_validate(kept)


def _is_harmless(tool: Tool) -> bool:
    said = tool.annotations
    return said is not None and bool(said.read_only_hint or said.idempotent_hint)


def _in_step() -> bool:
    run = holdfast.context.current_run()
    return run is not None and run.step is not None


def _free(arguments: Mapping[str, Any]) -> str:
    """Return the name under which an argument `self` is recorded, which cannot be passed to a
    method."""
    name = "self_"
    while name in arguments:
        name += "_"
    return name


def _only(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the only error in nested groups, or the group that has several."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
