"""Messages, tool results and structured answers of LangChain as plain data, and back.

Records name no class that a reader would import: messages are rebuilt from a closed list of kinds,
structured answers from the agent's own schemas.

The id of a message is recorded separately. LangGraph generates ids for messages without one, so ids
are not part of a model's request; and a message without its id is the same value everywhere, and is
stored once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from langchain.agents.middleware.types import ModelResponse
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import BaseMessage, messages_from_dict
from langgraph.types import Command, Send
from pydantic import BaseModel, TypeAdapter
from pydantic_core import to_json

import holdfast
from holdfast.errors import UsageError

Data = dict[str, Any]


@holdfast.versioning.register_type
@dataclass(frozen=True)
class Message:
    """A message somewhere inside the update of a command."""

    data: Data
    id: str | None


@holdfast.versioning.register_type
@dataclass(frozen=True)
class Goto:
    """A `Send` of a command."""

    node: str
    arg: Any


# --- messages -----------------------------------------------------------------------------------


def message_data(message: BaseMessage) -> Data:
    """Return a message as plain data, without its id and its defaults."""
    return {
        "type": message.type,
        **message.model_dump(exclude={"id", "type"}, exclude_defaults=True),
    }


def message_from(data: Mapping[str, Any], id: str | None) -> BaseMessage:
    """Rebuild the message; its kind must be one of LangChain's."""
    kind = data["type"]
    fields = {name: value for name, value in data.items() if name != "type"}
    message = messages_from_dict([{"type": kind, "data": {**fields, "id": id}}])[0]
    return message


def conversation(messages: Sequence[BaseMessage]) -> list[Data]:
    """Return the record of a model's request."""
    return [message_data(message) for message in messages]


# --- answers of models --------------------------------------------------------------------------


def response_data(response: Any, format: Any) -> Data:
    """Return an answer of a model as plain data, with the structured answer that was read from
    it."""
    if isinstance(response, BaseMessage):
        response = ModelResponse(result=[response])
    messages: list[BaseMessage] = response.result
    data: Data = {
        "messages": [message_data(message) for message in messages],
        "ids": [message.id for message in messages],
    }
    structured = response.structured_response
    if structured is not None:
        name, adapter = _schema_of(structured, format)
        data["structured"] = {"schema": name, "data": adapter.dump_python(structured, mode="json")}
    return data


def response_from(data: Data, format: Any) -> ModelResponse[Any]:
    """Rebuild the answer."""
    messages = [
        message_from(each, id) for each, id in zip(data["messages"], data["ids"], strict=True)
    ]
    kept = data.get("structured")
    structured = None if kept is None else _adapter(format, kept["schema"], kept["data"])
    return ModelResponse(result=messages, structured_response=structured)


def _schema_of(value: Any, format: Any) -> tuple[str, TypeAdapter[Any]]:
    """Return the name and type of a structured answer's schema, among those of the agent."""
    specs = _specs(format)
    for spec in specs:
        if isinstance(spec.schema, type) and type(value) is spec.schema:
            return spec.name, TypeAdapter(spec.schema)
    if isinstance(value, dict) and specs:  # A TypedDict or a JSON schema: the data is the value.
        return "", TypeAdapter(dict[str, Any])
    raise UsageError(
        f"the structured answer is a {type(value).__name__}, which is not one of the agent's schemas"
    )


def _adapter(format: Any, name: str, data: Any) -> Any:
    if not name:
        return data
    for spec in _specs(format):
        if spec.name == name:
            return TypeAdapter(spec.schema).validate_json(to_json(data))
    raise UsageError(
        f"a structured answer of the schema {name!r} is recorded, but the agent has no such "
        "schema any more; restore it in response_format="
    )


def _specs(format: Any) -> Sequence[Any]:
    schema = getattr(format, "schema", None)
    return () if schema is None else ToolStrategy(schema).schema_specs


# --- results of tools ---------------------------------------------------------------------------


def outcome_data(outcome: Any) -> Data:
    """Return the result of a tool call as plain data: a message, a command, or a list of both."""
    many = isinstance(outcome, list)
    items: list[Any] = cast("list[Any]", outcome) if many else [outcome]
    return {"items": [_item_data(item) for item in items], "many": many}


def outcome_from(data: Data) -> Any:
    """Rebuild the result of the tool call."""
    items = [_item_from(item) for item in data["items"]]
    return items if data["many"] else items[0]


def _item_data(item: Any) -> Data:
    if isinstance(item, BaseMessage):
        return {"message": message_data(item), "id": item.id}
    if isinstance(item, Command):
        fields = {name: getattr(item, name) for name in ("graph", "update", "resume", "goto")}
        return {"command": {name: plain(it) for name, it in fields.items() if it is not None}}
    raise UsageError(f"a tool returned a {type(item).__name__}, not a ToolMessage or a Command")


def _item_from(data: Data) -> Any:
    if "message" in data:
        return message_from(data["message"], data["id"])
    return Command(**{name: restored(it) for name, it in data["command"].items()})


def plain(value: Any) -> Any:
    """Return a value with plain data in place of all messages and sends in it."""
    if isinstance(value, BaseMessage):
        return Message(message_data(value), value.id)
    if isinstance(value, Send):
        return Goto(value.node, plain(value.arg))
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        return type(value)(plain(item) for item in items)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {key: plain(item) for key, item in cast("Data", value).items()}
    return value


def restored(value: Any) -> Any:
    """Return the original of a value from `plain`."""
    if isinstance(value, Message):
        return message_from(value.data, value.id)
    if isinstance(value, Goto):
        return Send(value.node, restored(value.arg))
    if isinstance(value, list | tuple):
        items = cast("Sequence[Any]", value)
        return type(value)(restored(item) for item in items)  # pyright: ignore[reportUnknownVariableType]
    if isinstance(value, dict):
        return {key: restored(item) for key, item in cast("Data", value).items()}
    return value


# --- results of graphs --------------------------------------------------------------------------


def state_data(value: Any) -> Any:
    """Return the state of a graph as the result of its run: messages and models as dictionaries."""
    if isinstance(value, BaseMessage):
        return message_data(value)
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list | tuple):
        return [state_data(item) for item in cast("Sequence[Any]", value)]
    if isinstance(value, dict):
        return {str(key): state_data(item) for key, item in cast("Data", value).items()}
    return value
