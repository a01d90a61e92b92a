"""OpenAI's Responses tool runner with a ledger that is a run.

    from holdfast.integrations.openai import ledger

    book = ledger([lookup, refund])
    runner = ResponsesToolRunner(functions=book.functions)
    response = runner.run(client, params, ledger=book)

The SDK reports to its ledger before and after every effect, and refuses to continue from a call
that began and did not end: "reconcile pending work externally". Inside a run nothing is left to
reconcile. The client's transport records model calls (`holdfast.integrations.http`), and tools are
recorded by their call IDs, which the ledger knows. When the program is started again the runner
makes the same calls and gets the recorded results. Only a call that is in doubt goes to its policy,
or to a person.

The runner calls the tools of one reply one by one; here the first call starts all of them.

`boundary` is for checkpoints that were kept elsewhere. A loop of your own, with chat completions or
responses, needs only `holdfast.integrations.tools`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import holdfast
from holdfast.errors import UsageError
from holdfast.integrations import _calls
from holdfast.integrations._calls import ToolCall, ToolResult
from holdfast.integrations._needs import needs
from holdfast.integrations._witness import look
from holdfast.integrations.tools import Tools
from holdfast.integrations.transcripts import repair

needs("openai", extra="openai")

from openai.lib.responses_tool_runner import (  # noqa: E402
    AsyncRegisteredFunction,
    AsyncResponsesToolLedger,
    RegisteredFunction,
    ResponsesToolCheckpoint,
    ResponsesToolLedger,
)

__all__ = ["AsyncLedger", "Ledger", "ModelNotRecorded", "async_ledger", "boundary", "ledger"]

_OUTSIDE = "no-run"


@dataclass(frozen=True)
class Ledger(ResponsesToolLedger):
    """A ledger, and the functions whose calls it knows."""

    functions: list[RegisteredFunction] = field(default_factory=list[RegisteredFunction])


@dataclass(frozen=True)
class AsyncLedger(AsyncResponsesToolLedger):
    """The ledger of an async runner."""

    functions: list[AsyncRegisteredFunction] = field(default_factory=list[AsyncRegisteredFunction])


class ModelNotRecorded(BaseException):
    """The runner's client has no durable transport. No `Exception`: the runner would hide its
    text."""


def ledger(
    tools: Iterable[Callable[..., Any]], *, run_id: str | None = None, asks_again: bool = False
) -> Ledger:
    """Return a ledger for a `ResponsesToolRunner`, with these tools as its functions.

    `tools` are functions, steps, effects or tools of Holdfast. Outside a run they are called
    plainly, and nothing is recorded. Inside a run the client must have a durable transport;
    otherwise `ModelNotRecorded` stops the runner before it calls a tool. `asks_again=True` allows a
    model that is asked again at each start.
    """
    box = tools if isinstance(tools, Tools) else Tools(tools)
    turn = _Turn(box, asks_again)

    def registered(name: str, definition: Any) -> RegisteredFunction:
        # The arguments are in the reply, beside the call's ID.
        return RegisteredFunction(definition, lambda _arguments: turn.call(name))

    functions = [registered(each.name, each.responses) for each in box]
    return Ledger(run_id or _run_id(), turn.save, None, functions)


def async_ledger(
    tools: Iterable[Callable[..., Any]], *, run_id: str | None = None, asks_again: bool = False
) -> AsyncLedger:
    """Return a ledger for an `AsyncResponsesToolRunner`; the awaited twin of `ledger`."""
    box = tools if isinstance(tools, Tools) else Tools(tools)
    turn = _Turn(box, asks_again)

    def registered(name: str, definition: Any) -> AsyncRegisteredFunction:
        return AsyncRegisteredFunction(definition, lambda _arguments: turn.call_awaited(name))

    functions = [registered(each.name, each.responses) for each in box]
    return AsyncLedger(run_id or _run_id(), turn.save_awaited, None, functions)


def _run_id() -> str:
    run = holdfast.context.current_run()
    return _OUTSIDE if run is None else run.run_id


def _is_in_run() -> bool:
    run = holdfast.context.current_run()
    return run is not None and run.step is None  # Inside a step everything is done again.


class _Reply:
    """The runner's last report, and the results of this reply's calls."""

    def __init__(self, tools: Tools, asks_again: bool) -> None:
        self._names = {each.name for each in tools}
        self._asks_again = asks_again
        self._witness = look()
        self._told: ResponsesToolCheckpoint | None = None
        self.results: dict[str, ToolResult] = {}

    def tell(self, checkpoint: ResponsesToolCheckpoint) -> None:
        """Receive the runner's report, before each request and after each answer."""
        self._told = checkpoint
        answered = checkpoint["phase"] == "final" or checkpoint["pending_items"]
        if not answered:
            self._witness = look()
        elif not (self._witness.recorded or self._asks_again) and _is_in_run():
            raise ModelNotRecorded(
                "the model was asked and its answer is not recorded: the runner's client has no durable "
                "transport. Make it OpenAI(http_client=httpx2.Client(transport=DurableTransport())), with "
                "the AsyncClient and AsyncDurableTransport for AsyncOpenAI (holdfast.integrations.http)"
            )

    def called(self, name: str) -> str:
        """The ID of the current call: the last one that the runner has announced."""
        attempted = self._told["attempted_call_ids"] if self._told else []
        if not attempted:
            raise UsageError(f"{name} was called by a runner without this ledger: ledger=book")
        return attempted[-1]

    def open_calls(self) -> list[ToolCall]:
        """This reply's calls of known functions without a result."""
        told = cast("ResponsesToolCheckpoint", self._told)
        returned = set(told["returned_call_ids"])
        return [
            call
            for call in _calls.responses_calls(told["pending_items"])
            if call.name in self._names and call.id not in returned
        ]


class _Turn:
    """The common part of the ledgers of sync and async runners."""

    def __init__(self, tools: Tools, asks_again: bool) -> None:
        self._tools = tools
        self._reply = _Reply(tools, asks_again)

    def save(self, checkpoint: ResponsesToolCheckpoint) -> None:
        """Write nothing: the journal has everything that the checkpoint says about this run."""
        self._reply.tell(checkpoint)

    async def save_awaited(self, checkpoint: ResponsesToolCheckpoint) -> None:
        self._reply.tell(checkpoint)

    def call(self, name: str) -> str:
        call_id, results = self._reply.called(name), self._reply.results
        if call_id not in results:
            results.update({it.id: it for it in self._tools.run(self._reply.open_calls())})
        return results.pop(call_id).content

    async def call_awaited(self, name: str) -> str:
        call_id, results = self._reply.called(name), self._reply.results
        if call_id not in results:
            made = await self._tools.aio.run(self._reply.open_calls())
            results.update({it.id: it for it in made})
        return results.pop(call_id).content


def boundary(
    checkpoint: ResponsesToolCheckpoint, results: Mapping[str, ToolResult | str] | None = None
) -> ResponsesToolCheckpoint:
    """Return a checkpoint that the SDK can resume from, made of one with pending work.

    For checkpoints that were kept beside a run (`results=transcripts.results_of(store, run_id)`). A
    call gets the result in the checkpoint, otherwise the one in `results`, otherwise a note that
    its outcome is unknown. It is never made again.
    """
    if checkpoint["phase"] != "pending":
        return checkpoint
    pending = [*checkpoint["pending_items"], *checkpoint["returned_outputs"]]
    before = cast("list[dict[str, Any]]", checkpoint["history"])
    whole = [*before, *cast("list[dict[str, Any]]", pending)]  # IDs are counted from its beginning.
    begun = len(repair(before, protocol="openai-responses", results=results))
    items = repair(whole, protocol="openai-responses", results=results)[begun:]
    made = [str(item["call_id"]) for item in items if item.get("type") == "function_call"]
    ids = list(dict.fromkeys([*checkpoint["returned_call_ids"], *made]))
    settled = {
        **checkpoint,
        "phase": "boundary",
        "revision": checkpoint["revision"] + 1,
        "history": [*checkpoint["history"], *items],
        "attempted_call_ids": ids,
        "returned_call_ids": list(ids),
        "pending_items": [],
        "returned_outputs": [],
    }
    return cast("ResponsesToolCheckpoint", settled)
