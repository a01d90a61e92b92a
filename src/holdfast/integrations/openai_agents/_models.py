"""Model calls as steps.

What the model was asked is recorded as plain data: instructions, items, and what it goes on from.
Settings, tools and clients are left out: they may change between a crash and the resume, and may
hold secrets. The answer is recorded as plain data too, and rebuilt from it live and replayed.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import AsyncIterator, Callable
from typing import Any

from agents import Model, ModelBehaviorError, ModelResponse
from agents.items import TResponseStreamEvent
from pydantic_core import to_jsonable_python

import holdfast
from holdfast.integrations._names import fitting
from holdfast.integrations._recorded_errors import CallFailed, as_itself, kept
from holdfast.integrations.openai_agents._answers import plain_response, rebuilt_response
from holdfast.integrations.openai_agents._lines import line
from holdfast.integrations.openai_agents._provider import ModelCallFailed, note_usage
from holdfast.integrations.openai_agents._streams import Asking, Ended, streamed


class DurableModel(Model):
    """A model whose calls are steps of the run that it is called in.

    `agent` is the name of the agent that asks, and the key of its line; `ended` makes the SDK's error
    of a stream that ended without an answer. It is made in the task that asks. Attributes that the
    SDK looks for on some models are those of the model inside.
    """

    def __init__(self, inner: Model, agent: str, ended: Ended) -> None:
        self._inner = inner
        self._agent = fitting(agent)
        self._ended = ended
        self._asker = asyncio.current_task()

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
        """Ask the model and hand on its events, or the events that were recorded before."""
        ask = functools.partial(self._inner.stream_response, system_instructions, input)
        asking = Asking(lambda: ask(*args, **kwargs), _name(self._inner), self._asker)
        asked = _asked(system_instructions, input, kwargs)
        return streamed(line(self._agent), asked, asking, self._ended)


def _asked(instructions: str | None, items: Any, beside: dict[str, Any]) -> dict[str, Any]:
    """Return what a model call is known by, as plain data."""
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
    """Return the name by which a model is called and priced, as the models of the SDK have it."""
    name = getattr(model, "model", None)
    return name if isinstance(name, str) else None
