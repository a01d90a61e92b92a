"""Streamed answers: yielded live while they are recorded, and part by part on replay.

Pydantic AI reads the whole stream inside the recorded call. A handler inside that call passes each
event to the consumer as it arrives.

If a reader leaves an answer before its end, the call is complete, as `Left`: the agent's next
request is the next step, live and on replay.
"""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from pydantic_ai.messages import ModelResponse
from pydantic_ai.models import (
    CompletedStreamedResponse,
    Model,
    ModelRequestContext,
    StreamedResponse,
)
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.usage import RequestUsage

from holdfast.integrations._relay import AsyncPut, arelay


@dataclass
class _Reader:
    """The consumer of a call: its events, and whether it still reads."""

    put: AsyncPut[Any]
    left: threading.Event
    shown: list[Any] = field(default_factory=list[Any])

    async def show(self, ctx: Any, events: AsyncIterable[Any]) -> None:
        async for event in events:
            self.shown.append(event)
            await self.put(event)


_reader: ContextVar[_Reader | None] = ContextVar("holdfast_pydantic_ai_reader", default=None)


def live_handler() -> Callable[[Any, AsyncIterable[Any]], Any] | None:
    """Return the handler that passes on live events, inside a call with a consumer."""
    reader = _reader.get()
    return None if reader is None else reader.show


def has_left() -> bool:
    """Return whether this call had a consumer that has left."""
    reader = _reader.get()
    return reader is not None and reader.left.is_set()


def follow(request_context: ModelRequestContext) -> ModelRequestContext:
    """Wrap the recorded model of a request, so that its streams are yielded live."""
    if not isinstance(request_context.model, Followed):
        request_context.model = Followed(request_context.model)
    return request_context


class Followed(WrapperModel):
    """A recorded model whose streams are yielded live."""

    @asynccontextmanager
    async def request_stream(
        self,
        messages: Any,
        model_settings: Any,
        model_request_parameters: Any,
        run_context: Any = None,
    ) -> AsyncGenerator[StreamedResponse]:
        """Open the stream; it is open when the first event has arrived, or when the whole answer is
        recorded."""
        left = threading.Event()

        async def record(put: AsyncPut[Any]) -> list[Any]:
            reader = _Reader(put, left)
            _reader.set(reader)  # Only in the context of this call, which has its own task.
            opened = self.wrapped.request_stream(
                messages, model_settings, model_request_parameters, run_context
            )
            async with opened as done:
                # A broken stream arrives as one that raises at its end.
                if (broke_off := getattr(done, "_error", None)) is not None:
                    raise broke_off
                return [*reader.shown, done]

        async with aclosing(arelay(record, left=left)) as items:
            first = await anext(items)
            if isinstance(first, CompletedStreamedResponse):
                yield CompletedStreamedResponse(
                    first.response,
                    model_request_parameters=model_request_parameters,
                    replay_events=True,
                )
            else:
                yield _Stream(model_request_parameters, self.wrapped, first, items)

    def _with_serving_wrapper(self, wrap: Callable[[Model], Model]) -> Model:
        # The recorded model wraps its own calls.
        return Followed(self.wrapped._with_serving_wrapper(wrap))


class _Stream(StreamedResponse):
    """A stream that is being recorded; it ends when the record is committed."""

    def __init__(
        self, parameters: Any, model: Model, first: Any, items: AsyncIterator[Any]
    ) -> None:
        super().__init__(parameters)
        self._model = model
        self._first = first
        self._items = items
        self._recorded: ModelResponse | None = None

    def __aiter__(self) -> AsyncIterator[Any]:
        # The events come from the provider's stream object, so they include ends of parts.
        if self._event_iterator is None:
            self._event_iterator = self._get_event_iterator()
        return self._event_iterator

    async def _get_event_iterator(self) -> AsyncIterator[Any]:
        yield self._applied(self._first)
        async for item in self._items:
            if isinstance(item, CompletedStreamedResponse):
                self._recorded = item.response
                break
            yield self._applied(item)
        self._finished = True

    def _applied(self, event: Any) -> Any:
        self._parts_manager.apply_event(event)
        return event

    def get(self) -> ModelResponse:
        """Return the recorded answer, or the part that has arrived."""
        return self._recorded if self._recorded is not None else super().get()

    async def close_stream(self) -> None:
        """Stop reading. Then nothing is recorded, and a resume asks the model again."""
        await self._items.aclose()  # type: ignore[attr-defined]

    @property
    def usage(self) -> RequestUsage:
        """The usage that the provider reports at the end."""
        return self._recorded.usage if self._recorded is not None else RequestUsage()

    @property
    def model_name(self) -> str:
        """The name of the model."""
        return self._model.model_name

    @property
    def provider_name(self) -> str | None:
        """The name of the provider."""
        return self._model.system

    @property
    def provider_url(self) -> str | None:
        """The address of the provider."""
        return self._model.base_url

    @property
    def timestamp(self) -> datetime:
        """The time of the answer."""
        return self.get().timestamp if self._recorded is not None else datetime.now().astimezone()
