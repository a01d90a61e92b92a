"""Model calls as steps.

What the model was asked is recorded as plain data: instructions, items, and what it goes on from.
Settings, tools and clients are left out: they may change between a crash and the resume, and may
hold secrets. The answer is recorded as plain data too, and rebuilt from it live and replayed.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import AsyncIterator, Callable, Generator, Sequence
from typing import Any

from agents import Model, ModelResponse
from agents.items import TResponseStreamEvent
from openai import APIError
from pydantic_core import to_jsonable_python

import holdfast
from holdfast.integrations._names import fitting
from holdfast.integrations._relay import Put, arelay
from holdfast.integrations.openai_agents._answers import (
    add_event,
    plain,
    plain_response,
    rebuilt_event,
    rebuilt_response,
)
from holdfast.integrations.openai_agents._lines import line

_COMPLETED = "response.completed"


class ModelCallFailed(Exception):
    """The provider refused or failed; looks the same live and replayed.

    It says what policies for retries ask for: `status_code` and `code`.
    """

    def __init__(self, kind: str, message: str, status_code: int | None, code: str | None) -> None:
        super().__init__(kind, message, status_code, code)
        self.kind = kind
        self.message = message
        self.status_code = status_code
        self.code = code

    def __str__(self) -> str:
        """Say what the provider's SDK said."""
        return f"{self.kind}: {self.message}"


class DurableModel(Model):
    """A model whose calls are steps of the run that it is called in.

    `agent` is the name of the agent that asks, and the key of its line. Attributes that the SDK
    looks for on some models are those of the model inside.
    """

    def __init__(self, inner: Model, agent: str) -> None:
        self._inner = inner
        self._agent = fitting(agent)

    def __getattr__(self, name: str) -> Any:
        """Answer as the model inside does."""
        return getattr(self._inner, name)

    async def close(self) -> None:
        """Close the model inside."""
        await self._inner.close()

    async def _cleanup_on_run_end(self, owner: object) -> None:
        # The SDK calls it when a run of an agent ends, and finds a default on the base class.
        await self._inner._cleanup_on_run_end(owner)

    def get_retry_advice(self, request: Any) -> Any:
        """Ask the model inside."""
        return self._inner.get_retry_advice(request)

    async def get_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        """Ask the model, or return what it answered before."""
        ask = functools.partial(self._inner.get_response, system_instructions, input)
        with holdfast.keyed(line(self._agent)):
            answer = await _respond(
                _asked(system_instructions, input, kwargs),
                call=lambda: ask(*args, **kwargs),
                model=_name(self._inner),
            )
        return rebuilt_response(answer)

    def stream_response(
        self, system_instructions: str | None, input: Any, *args: Any, **kwargs: Any
    ) -> AsyncIterator[TResponseStreamEvent]:
        """Ask the model and hand on its events, or the events that were recorded before."""
        ask = functools.partial(self._inner.stream_response, system_instructions, input)
        key = line(self._agent)

        async def record(put: Put[TResponseStreamEvent]) -> Sequence[TResponseStreamEvent]:
            with holdfast.keyed(key):
                told = await _stream(
                    _asked(system_instructions, input, kwargs),
                    call=lambda: ask(*args, **kwargs),
                    model=_name(self._inner),
                    put=put,
                )
            return [rebuilt_event(event) for event in told]

        return arelay(record)


def _asked(instructions: str | None, items: Any, beside: dict[str, Any]) -> dict[str, Any]:
    """Return what a model call is known by, as plain data."""
    before = {
        name: to_jsonable_python(beside[name])
        for name in ("previous_response_id", "conversation_id", "prompt")
        if beside.get(name) is not None
    }
    return {"instructions": instructions, "input": to_jsonable_python(items), "before": before}


async def _respond_now(asked: Any, call: Callable[[], Any], model: str | None) -> Any:  # noqa: ARG001 - it is recorded
    with _told_apart():
        response: ModelResponse = await call()
    _used(model, response.usage)
    return plain_response(response)


async def _stream_now(
    asked: Any,  # noqa: ARG001 - it is recorded
    call: Callable[[], Any],
    model: str | None,
    put: Put[TResponseStreamEvent],
) -> Any:
    told: list[dict[str, Any]] = []
    with _told_apart():
        async for event in call():
            # Before it is handed on: the SDK may change it.
            add_event(told, plain(event))
            if event.type == _COMPLETED:
                _used(model, event.response.usage)
            put(event)
    if not told or told[-1]["type"] != _COMPLETED:
        raise _cut(f"the stream ended without {_COMPLETED}")
    return told


async def finished(chunks: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """Hand on what a provider of chat completions streams. A stream that ends before it says why it
    ends was cut; what the SDK makes of it does not show that."""
    why = None
    async for chunk in chunks:
        for choice in chunk.choices or ():
            why = why or choice.finish_reason
        yield chunk
    if why is None:
        raise _cut("the stream ended without a finish_reason")


def _cut(message: str) -> ModelCallFailed:
    return ModelCallFailed("StreamCut", message, None, None)


@contextlib.contextmanager
def _told_apart() -> Generator[None]:
    try:
        yield
    except APIError as error:
        status_code = getattr(error, "status_code", None)
        raise ModelCallFailed(type(error).__name__, str(error), status_code, error.code) from error


_respond = holdfast.recorded(
    _respond_now, name="model", unrecorded=("call", "model"), raises=(ModelCallFailed,)
)
_stream = holdfast.recorded(
    _stream_now, name="model", unrecorded=("call", "model", "put"), raises=(ModelCallFailed,)
)


def _used(model: str | None, usage: Any) -> None:
    if usage is not None:
        tokens = {"input_tokens": usage.input_tokens, "output_tokens": usage.output_tokens}
        holdfast.usage(model=model, **tokens)


def _name(model: Model) -> str | None:
    """Return the name by which a model is called and priced, as the models of the SDK have it."""
    name = getattr(model, "model", None)
    return name if isinstance(name, str) else None
