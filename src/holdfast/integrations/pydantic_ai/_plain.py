"""What is recorded, in plain data: conversations, arguments, answers of the model, its errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic_ai.durable_exec import JSON_CODEC, DurabilityCodec
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError
from pydantic_ai.messages import ModelMessage, ModelRequest
from pydantic_core import to_jsonable_python

from holdfast.errors import UsageError

_MESSAGES: TypeAdapter[list[ModelMessage]] = TypeAdapter(list[ModelMessage])
_SENT_AT = "timestamp"


class Codec(DurabilityCodec):
    """Results as JSON. What cannot be read back is no `ValidationError`.

    Pydantic AI would take that for wrong arguments of the model, and call the tool again.
    """

    def dump(self, tp: Any, value: Any) -> Any:
        """Return the value as plain data."""
        return JSON_CODEC.dump(tp, value)

    def load(self, tp: Any, payload: Any) -> Any:
        """Return the value of plain data that was recorded, today or by another version."""
        try:
            return JSON_CODEC.load(tp, payload)
        except ValidationError as error:
            text = str(error)  # The error itself must not be found as a cause, and be handled.
        raise UsageError(
            f"this version of pydantic-ai cannot read what the journal has: {text}; "
            "go on with the version that wrote it"
        )


def conversation(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """Return the messages without what changes by itself: time stamps, ids of runs, token counts.

    Defaults are left out, so that a field which a later version adds makes no difference.
    """
    dumped = _MESSAGES.dump_python(list(messages), mode="json", exclude_defaults=True)
    return [
        {"kind": message.kind, "parts": [*map(_part, message.parts, plain["parts"])]}
        for message, plain in zip(messages, dumped, strict=True)
    ]


def _part(part: Any, plain: dict[str, Any]) -> dict[str, Any]:
    return {
        "kind": part.part_kind,
        **{name: value for name, value in plain.items() if name not in (_SENT_AT, "part_kind")},
    }


def instructions(messages: Sequence[ModelMessage]) -> str | None:
    """Return the instructions that the model gets: those of the last request."""
    for message in reversed(messages):
        if isinstance(message, ModelRequest):
            return message.instructions
    return None


def arguments(of_tool: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a tool; what is no data is known by its class only."""
    plain: dict[str, Any] = to_jsonable_python(of_tool, fallback=lambda it: type(it).__qualname__)
    return plain


def answer(payload: Any) -> Any:
    """Return an answer of the model, without the fields that are empty.

    Until 2.60 Pydantic AI keeps each event of a stream beside it. Whole parts are shown on replay.
    """
    if "response" in payload:
        return {"response": _full(payload["response"]), "events": []}
    return _full(payload)


def _full(response: dict[str, Any]) -> dict[str, Any]:
    response = {name: value for name, value in response.items() if value is not None}
    response["parts"] = [
        {name: value for name, value in part.items() if value is not None}
        for part in response["parts"]
    ]
    return response


class ModelFailed(Exception):
    """A request to the model failed: what journals of earlier versions keep of such an error."""

    def __init__(self, model: str, status: int | None, message: str, body: Any) -> None:
        super().__init__(model, status, message, body)
        self.model = model
        self.status = status
        self.message = message
        self.body = body

    def __str__(self) -> str:
        return self.message

    def original(self) -> ModelAPIError:
        """Return the error that Pydantic AI, its hooks and fallbacks know."""
        if self.status is None:
            return ModelAPIError(self.model, self.message)
        return ModelHTTPError(self.status, self.model, self.body)
