"""Tool calls and their results, in the three protocols of model providers.

| protocol | a reply with calls | its results |
|---|---|---|
| `openai-chat` | a message with `tool_calls` | one message of the role `tool` each |
| `openai-responses` | `function_call` items in `output` | one `function_call_output` item each |
| `anthropic` | `tool_use` blocks in `content` | `tool_result` blocks in one message of the user |
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

import msgspec

from holdfast.errors import UsageError

Protocol = Literal["openai-chat", "openai-responses", "anthropic"]
LEVELS_MAX = 60
"""A stored value has at most 64 levels; the arguments' surroundings take some of them."""
PROTOCOLS: tuple[str, ...] = get_args(Protocol)


class ToolCall(msgspec.Struct, frozen=True):
    """One tool call of a model."""

    id: str
    name: str
    arguments: str | dict[str, Any]
    """As the provider sends them: JSON text (OpenAI), or an object (Anthropic)."""


class ToolResult(msgspec.Struct, frozen=True):
    """The result of one tool call."""

    id: str
    content: str
    is_error: bool = False


def checked(protocol: str) -> Protocol:
    """Refuse an unknown protocol."""
    if protocol not in PROTOCOLS:
        raise UsageError(f"protocol {protocol!r}: one of {', '.join(PROTOCOLS)}")
    return cast("Protocol", protocol)


def get(thing: Any, name: str) -> Any:
    """Return a field of an SDK's object or of a dict."""
    if isinstance(thing, Mapping):
        return cast("Mapping[str, Any]", thing).get(name)
    return getattr(thing, name, None)


def chat_calls(message: Any) -> list[ToolCall]:
    """Return the calls in a message of OpenAI's chat completions."""
    return [_chat_call(call) for call in get(message, "tool_calls") or ()]


def _chat_call(call: Any) -> ToolCall:
    function = get(call, "function")
    if function is None:  # A custom tool, whose input is a plain text.
        custom = get(call, "custom")
        return ToolCall(get(call, "id"), str(get(custom, "name")), str(get(custom, "input")))
    return ToolCall(get(call, "id"), str(get(function, "name")), str(get(function, "arguments")))


def responses_calls(response: Any) -> list[ToolCall]:
    """Return the function calls in a response, or in a list of its items."""
    items = response if isinstance(response, Sequence) else get(response, "output")
    return [
        ToolCall(get(item, "call_id"), str(get(item, "name")), str(get(item, "arguments")))
        for item in cast("Iterable[Any]", items or ())
        if get(item, "type") == "function_call"
    ]


def messages_calls(message: Any) -> list[ToolCall]:
    """Return the calls in a message of Anthropic's that this side has to answer."""
    content = get(message, "content")
    if isinstance(content, str) or content is None:
        return []
    return [
        ToolCall(get(block, "id"), str(get(block, "name")), dict(get(block, "input") or {}))
        for block in content
        if get(block, "type") == "tool_use"
    ]


def chat_result(result: ToolResult) -> dict[str, Any]:
    """One message of the role `tool`."""
    return {"role": "tool", "tool_call_id": result.id, "content": result.content}


def responses_result(result: ToolResult) -> dict[str, Any]:
    """One item of input."""
    return {"type": "function_call_output", "call_id": result.id, "output": result.content}


def messages_result(result: ToolResult) -> dict[str, Any]:
    """One block of the user's next message."""
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": result.id,
        "content": result.content,
    }
    return block | {"is_error": True} if result.is_error else block


def storable(said: Any) -> Any:
    """Return the text of a model in a form that can be stored: surrogates are escaped."""
    if isinstance(said, str):
        return said.encode("utf-8", "backslashreplace").decode()
    if isinstance(said, Mapping):
        pairs = cast("Mapping[str, Any]", said).items()
        return {storable(name): storable(value) for name, value in pairs}
    return [storable(it) for it in cast("list[object]", said)] if isinstance(said, list) else said


def is_shallow(said: Any) -> bool:
    """Return whether what a model said is nested so little that it can be kept."""
    level: list[Any] = [said]
    for _ in range(LEVELS_MAX):
        below: list[Any] = []
        for part in level:
            if isinstance(part, Mapping):
                below += cast("Mapping[str, Any]", part).values()
            elif isinstance(part, list | tuple):
                below += cast("Sequence[Any]", part)
        if not below:
            return True
        level = below
    return False


def kept(arguments: str | Mapping[str, Any]) -> Any:
    """Return the arguments of a call that is not made, as they can be stored."""
    if is_shallow(arguments):
        return storable(arguments)
    try:
        return json.dumps(arguments, default=str)
    except RecursionError:
        return "(nested too deep to be shown)"


def is_storable(said: Any) -> bool:
    """Return whether all text in what a model said is whole."""
    return bool(storable(said) == said)


def text_of(value: Any) -> str:
    """Return a tool's result for the model: a text unchanged, anything else as JSON."""
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value, enc_hook=_plain, order="deterministic").decode()


def _plain(value: Any) -> Any:
    dump = getattr(value, "model_dump", None)
    if dump is None:
        raise TypeError(f"a model cannot read a {type(value).__name__}; return text or plain data")
    return dump(mode="json")
