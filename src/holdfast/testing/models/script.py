"""The script: the model's answers, turn by turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import msgspec

from holdfast.errors import UsageError
from holdfast.testing.models.request import Request

# A tool's name and arguments, and the id of the call. Without an id, one is made of turn and place.
ToolCall: TypeAlias = tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], str]

# How an answer ends: said, cut at the limit of its tokens, or given up by the provider.
End: TypeAlias = Literal["complete", "incomplete", "failed"]


@dataclass(frozen=True)
class Turn:
    """One turn of the model: a text, tool calls, or both.

    A streamed answer waits `pause` seconds before each event.
    """

    text: str
    calls: tuple[ToolCall, ...]
    pause: float
    end: End = "complete"


@dataclass(frozen=True, init=False)
class Say(Turn):
    """The model answers with a text.

    `end="incomplete"`: the text is cut at the limit of its tokens. `end="failed"`: the provider gives
    the answer up after it; that is an answer in Responses only.
    """

    def __init__(self, text: str, *, pause: float = 0.0, end: End = "complete") -> None:
        super().__init__(text, (), pause, end)


@dataclass(frozen=True, init=False)
class CallTools(Turn):
    """The model asks for tools, all in one turn, after the text `say` if there is one."""

    def __init__(self, *calls: ToolCall, say: str = "", pause: float = 0.0) -> None:
        if not calls:
            raise UsageError("CallTools needs a call: CallTools((name, arguments, id), …)")
        super().__init__(say, calls, pause)


Scripted: TypeAlias = Turn | Callable[[Request], Turn]


def turn_of(script: Sequence[Scripted], request: Request) -> Turn:
    """The turn that answers `request`; functions are asked."""
    scripted = script[request.turn]
    return scripted if isinstance(scripted, Turn) else scripted(request)


class _Call(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    name: str
    arguments: dict[str, Any]
    id: str | None = None


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    say: str | None = None
    call: list[_Call] = []
    pause: float = 0.0


def script_from_json(text: str) -> list[Scripted]:
    """Read a script from a file: a list of texts, `{"say": …}` and `{"call": [[name, {…}, id],
    …]}`."""
    try:
        listed = msgspec.json.decode(text, type=list[str | _Written])
    except msgspec.MsgspecError as error:
        raise UsageError(f"the file is no script: {error}") from error
    return [_turn(number, written) for number, written in enumerate(listed)]


def _turn(number: int, written: str | _Written) -> Turn:
    if isinstance(written, str):
        return Say(written)
    if written.call:
        calls = map(_tool_call, written.call)
        return CallTools(*calls, say=written.say or "", pause=written.pause)
    if written.say is None:
        raise UsageError(f'turn {number} of the script has neither "say" nor "call"')
    return Say(written.say, pause=written.pause)


def _tool_call(call: _Call) -> ToolCall:
    if call.id is None:
        return call.name, call.arguments
    return call.name, call.arguments, call.id
