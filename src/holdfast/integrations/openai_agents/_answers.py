"""Answers of models as plain data, and back.

Only fields that were set are recorded, so that an item is sent back to the provider unchanged.
Objects are rebuilt as OpenAI's SDK builds them from a response: by their `type`, and without
validation. So fields that this release does not know are kept, and an answer that an older release
recorded can be read.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Annotated, Any, cast, get_args, get_origin

from agents import ModelResponse, Usage
from agents.items import TResponseOutputItem, TResponseStreamEvent
from openai import BaseModel
from openai.types.responses import ResponseOutputItem, ResponseStreamEvent
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python


def plain(value: Any) -> Any:
    """Return an item or event as plain data."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True, exclude_unset=True, warnings=False)
    return to_jsonable_python(value)


def plain_response(response: ModelResponse) -> dict[str, Any]:
    """Return an answer as plain data, without empty parts."""
    parts = {it.name: getattr(response, it.name) for it in dataclasses.fields(response)}
    told = {name: plain(value) for name, value in parts.items() if value is not None}
    return {**told, "output": [plain(item) for item in response.output]}


def rebuilt_response(told: dict[str, Any]) -> ModelResponse:
    """Return the recorded answer, with the parts that this release knows."""
    known = {it.name for it in dataclasses.fields(ModelResponse)}
    parts = {name: value for name, value in told.items() if name in known}
    parts["output"] = [_rebuilt(ResponseOutputItem, item) for item in told["output"]]
    parts["usage"] = _usage().validate_python(told["usage"])
    return ModelResponse(**{"response_id": None, **parts})


def rebuilt_event(told: dict[str, Any]) -> TResponseStreamEvent:
    """Return the recorded event."""
    return cast("TResponseStreamEvent", _rebuilt(ResponseStreamEvent, told))


def add_event(told: list[dict[str, Any]], event: dict[str, Any]) -> None:
    """Add an event. Consecutive pieces of one text are merged."""
    last = told[-1] if told else {}
    if str(event.get("type")).endswith(".delta") and _same_text(last, event):
        last["delta"] += event["delta"]
        if event.get("logprobs"):
            last["logprobs"] = [*(last.get("logprobs") or ()), *event["logprobs"]]
        return
    told.append(event)


def _same_text(last: dict[str, Any], event: dict[str, Any]) -> bool:
    texts = isinstance(last.get("delta"), str) and isinstance(event.get("delta"), str)
    return texts and _place(last) == _place(event)


def _place(event: dict[str, Any]) -> dict[str, Any]:
    changing = ("delta", "logprobs", "sequence_number", "obfuscation")
    return {name: value for name, value in event.items() if name not in changing}


def _rebuilt(union: Any, told: dict[str, Any]) -> TResponseOutputItem | TResponseStreamEvent:
    kind = _classes(union).get(told.get("type", ""), BaseModel)
    made = kind.construct(**told)
    for field in kind.model_fields.values():  # A field with an alias is present twice.
        (made.model_extra or {}).pop(field.alias or "", None)
    return cast("TResponseOutputItem", made)


@functools.cache
def _classes(union: Any) -> dict[str, type[BaseModel]]:
    """Return the classes of a union, by the values of their `type`."""
    members = get_args(union)[0] if get_origin(union) is Annotated else union
    found: dict[str, type[BaseModel]] = {}
    for kind in get_args(members):
        for name in get_args(kind.model_fields["type"].annotation):
            found[name] = kind
    return found


@functools.cache
def _usage() -> TypeAdapter[Usage]:
    return TypeAdapter(Usage)
