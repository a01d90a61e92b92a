"""The records as plain data: conversations, arguments, answers and errors of the model."""

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
    """Results as JSON. An unreadable result does not raise `ValidationError`.

    Pydantic AI would treat that as invalid arguments of the model, and call the tool again.
    """

    def dump(self, tp: Any, value: Any) -> Any:
        """Return the value as plain data."""
        return JSON_CODEC.dump(tp, value)

    def load(self, tp: Any, payload: Any) -> Any:
        """Return the value of plain data that this or another version recorded."""
        try:
            return JSON_CODEC.load(tp, payload)
        except ValidationError as error:
            text = str(error)  # The error must not be the cause, where a handler could find it.
        raise UsageError(
            f"this version of pydantic-ai cannot read a value of the journal: {text}; "
            "continue with the version that wrote it"
        )


def conversation(messages: Sequence[ModelMessage]) -> list[dict[str, Any]]:
    """Return the messages without fields that vary: time stamps, ids of runs, token counts.

    Defaults are omitted, so that a field that a later version adds makes no difference.
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
    """Return the instructions of the last request, which the model receives."""
    for message in reversed(messages):
        if isinstance(message, ModelRequest):
            return message.instructions
    return None


def arguments(of_tool: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of a tool; an object that is not data is represented by its class."""
    plain: dict[str, Any] = to_jsonable_python(of_tool, fallback=lambda it: type(it).__qualname__)
    return plain


def answer(payload: Any) -> Any:
    """Return an answer of the model, without empty fields.

    Until 2.60 Pydantic AI adds each event of a stream to it. A replay yields whole parts.
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
    """A request to the model failed. Journals of earlier versions have this error."""

    def __init__(self, model: str, status: int | None, message: str, body: Any) -> None:
        super().__init__(model, status, message, body)
        self.model = model
        self.status = status
        self.message = message
        self.body = body

    def __str__(self) -> str:
        return self.message

    def original(self) -> ModelAPIError:
        """Return the error class that Pydantic AI, its hooks and fallbacks handle."""
        if self.status is None:
            return ModelAPIError(self.model, self.message)
        return ModelHTTPError(self.status, self.model, self.body)
