"""Streamed answers: yielded live while they are recorded, replayed from the record later.

A stream that ends complete is an outcome. An incomplete or failed one is not: the SDK raises. But
the consumer has seen its events, and a program may catch the error and use them. So the recorded
failure contains the events: a replay yields them all again, and a run that failed with this error
asks the model again when it is resumed.

If a reader leaves before the end, its call is complete, as `Left`: the same call made again is the
next one, live and on replay. The SDK's time limit is different: the SDK repeats the request itself,
and that is the same call. The cancelled task distinguishes the two: the asking task, or only the
reading one.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from agents.items import TResponseStreamEvent

import holdfast
from holdfast.integrations._recorded_errors import CallFailed, as_itself, kept
from holdfast.integrations._relay import AsyncPut, Left, arelay
from holdfast.integrations.openai_agents._answers import add_event, plain, rebuilt_event
from holdfast.integrations.openai_agents._provider import ModelCallFailed, note_usage

Event = TResponseStreamEvent
Ended = Callable[[Event], Exception]
"""Makes the SDK's error for an event that ends a stream without an answer."""

_COMPLETED = "response.completed"
_UNFINISHED = ("response.incomplete", "response.failed", "response.error", "error")
_ENDS = (_COMPLETED, *_UNFINISHED)


class Unfinished(Exception):
    """The stream ended without an answer. `told` has its events as plain data."""

    def __init__(self, told: list[dict[str, Any]]) -> None:
        super().__init__(told)
        self.told = told

    def __str__(self) -> str:
        """Describe its end."""
        return f"the stream ended with {self.told[-1]['type']}"


@dataclass(frozen=True)
class Asking:
    """One model call in progress: `call` sends the request, and `asker` is the SDK's task that
    waits for it."""

    call: Callable[[], AsyncIterator[Event]]
    model: str | None
    asker: asyncio.Task[Any] | None


async def streamed(key: str, asked: Any, asking: Asking, ended: Ended) -> AsyncGenerator[Event]:
    """Yield the events of an answer as they arrive, or the recorded events."""
    reader = asyncio.current_task()
    live: list[Event] = []

    async def record(put: AsyncPut[Event]) -> Sequence[Event]:
        async def hand_on(event: Event) -> None:
            live.append(event)
            if (
                getattr(event, "type", None) != _COMPLETED
            ):  # The reader may see it only after the record.
                await put(event)

        def left() -> bool:
            timed_out = _is_cancelled(reader) and not _is_cancelled(asking.asker)
            return not timed_out

        try:
            with holdfast.adapters.step_key(key):
                told = await as_itself(_stream(asked, asking=asking, put=hand_on, left=left))
        except Left as gone:  # For the event loop, this task was cancelled.
            raise asyncio.CancelledError from gone
        return live or [rebuilt_event(event) for event in told]

    try:
        async with aclosing(arelay(record)) as events:
            async for event in events:
                yield event
    except Unfinished as unfinished:
        *before, last = [rebuilt_event(event) for event in unfinished.told]
        for event in () if live else before:
            yield event
        raise ended(last) from unfinished


def _is_cancelled(task: asyncio.Task[Any] | None) -> bool:
    return task is not None and task.cancelling() > 0


async def _stream_now(
    asked: Any,  # noqa: ARG001 - it is recorded
    asking: Any,  # Not its class: the annotation decides what is recorded.
    put: AsyncPut[Event],
    left: Callable[[], bool],
) -> Any:
    told: list[dict[str, Any]] = []
    events = asking.call()
    try:
        with kept():
            async for event in events:
                # Before it is passed on, because the SDK may change it.
                add_event(told, plain(event))
                kind = getattr(event, "type", None)
                if kind in _ENDS and (response := getattr(event, "response", None)):
                    note_usage(asking.model, response.usage)
                if kind in _UNFINISHED:
                    raise Unfinished(told)
                await put(event)
    except asyncio.CancelledError as cancelled:
        if left():
            raise Left from cancelled
        raise
    finally:
        await _close(events)
    if not told or told[-1].get("type") != _COMPLETED:
        raise cut(f"the stream ended without {_COMPLETED}")
    return told


async def _close(events: Any) -> None:
    """Close a stream as the SDK does: an error in that does not change the outcome."""
    close = getattr(events, "aclose", None) or getattr(events, "close", None)
    if close is not None:
        with contextlib.suppress(Exception):
            closing = close()
            if inspect.isawaitable(closing):
                await closing


_stream = holdfast.adapters.as_step(
    _stream_now,
    name="model",
    unrecorded=("asking", "put", "left"),
    raises=(CallFailed, ModelCallFailed, Unfinished),
)


async def finished(chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Pass on the stream of a chat completions provider. A stream without a finish reason was cut;
    the SDK's events do not show that."""
    why = None
    async for chunk in chunks:
        for choice in chunk.choices or ():
            why = why or choice.finish_reason
        yield chunk
    if why is None:
        raise cut("the stream ended without a finish_reason")


def cut(message: str) -> ModelCallFailed:
    """Return the error of a stream that was cut."""
    return ModelCallFailed("StreamCut", message, None, None)
