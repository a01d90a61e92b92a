"""OpenAI's Responses tool runner with a ledger that is a run.

    from holdfast.integrations.openai import ledger

    book = ledger([lookup, refund])
    runner = ResponsesToolRunner(functions=book.functions)
    response = runner.run(client, params, ledger=book)

The SDK tells its ledger what it is about to do, before and after every effect, and refuses to go on
from a call that was begun and not ended: "reconcile pending work externally". Inside a run nothing
is left to reconcile. Model calls are recorded by the client's transport (`holdfast.integrations.http`)
and tools by the ids of their calls, which the ledger knows; when the program is started again the
runner goes the same way, and gets what was recorded. Only a call that is truly in doubt goes to its
policy, or to a person.

The tools of one reply, which the runner calls one by one, are all begun with the first of them.

`boundary` is for checkpoints that were kept elsewhere. For a loop of your own, with chat completions
or responses, `holdfast.integrations.tools` is all that is needed.
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
    """A ledger, and the functions that it knows the calls of."""

    functions: list[RegisteredFunction] = field(default_factory=list[RegisteredFunction])


@dataclass(frozen=True)
class AsyncLedger(AsyncResponsesToolLedger):
    """The ledger of an async runner."""

    functions: list[AsyncRegisteredFunction] = field(default_factory=list[AsyncRegisteredFunction])


class ModelNotRecorded(BaseException):
    """The runner's client has no durable transport. No `Exception`: the runner would hide its text."""


def ledger(
    tools: Iterable[Callable[..., Any]], *, run_id: str | None = None, asks_again: bool = False
) -> Ledger:
    """Return a ledger for a `ResponsesToolRunner`, with these tools as its functions.

    `tools` are functions, steps, effects or tools of ours. Outside a run they are called plainly,
    and nothing is recorded. Inside a run the client must have a durable transport, or the runner is
    stopped with `ModelNotRecorded` before it calls a tool; `asks_again=True` allows a model that is
    asked anew at each start.
    """
    box = tools if isinstance(tools, Tools) else Tools(tools)
    turn = _Turn(box, asks_again)

    def registered(name: str, definition: Any) -> RegisteredFunction:
        # The arguments stand in the reply, beside the id of the call.
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
    return run is not None and run.step is None  # Inside a step everything is done anew.


class _Reply:
    """What the runner told last, and the results of the calls of this reply."""

    def __init__(self, tools: Tools, asks_again: bool) -> None:
        self._names = {each.name for each in tools}
        self._asks_again = asks_again
        self._witness = look()
        self._told: ResponsesToolCheckpoint | None = None
        self.results: dict[str, ToolResult] = {}

    def tell(self, checkpoint: ResponsesToolCheckpoint) -> None:
        """Take what the runner says, before each request and after each answer."""
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
        """The id of the call that is made now: the last one that the runner has announced."""
        attempted = self._told["attempted_call_ids"] if self._told else []
        if not attempted:
            raise UsageError(f"{name} was called by a runner without this ledger: ledger=book")
        return attempted[-1]

    def open_calls(self) -> list[ToolCall]:
        """The calls of this reply to functions of ours that have no result yet."""
        told = cast("ResponsesToolCheckpoint", self._told)
        returned = set(told["returned_call_ids"])
        return [
            call
            for call in _calls.responses_calls(told["pending_items"])
            if call.name in self._names and call.id not in returned
        ]


class _Turn:
    """What both colours of a runner tell the ledger, and call."""

    def __init__(self, tools: Tools, asks_again: bool) -> None:
        self._tools = tools
        self._reply = _Reply(tools, asks_again)

    def save(self, checkpoint: ResponsesToolCheckpoint) -> None:
        """Nothing is written: what the checkpoint says of this run is in its journal."""
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

    For checkpoints that were kept beside a run (`results=transcripts.results_of(store, run_id)`).
    A call gets the result in the checkpoint, else the one in `results`, else a note that its outcome
    is unknown. It is never made again.
    """
    if checkpoint["phase"] != "pending":
        return checkpoint
    pending = [*checkpoint["pending_items"], *checkpoint["returned_outputs"]]
    before = cast("list[dict[str, Any]]", checkpoint["history"])
    whole = [*before, *cast("list[dict[str, Any]]", pending)]  # Ids are counted from its beginning.
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
