"""The script: what the model says, turn by turn."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.errors import UsageError
from holdfast.testing.models.request import Request

# A tool's name and arguments, and the id of the call. Without an id, one is made of turn and place.
ToolCall: TypeAlias = tuple[str, dict[str, Any]] | tuple[str, dict[str, Any], str]


@dataclass(frozen=True)
class Say:
    """The model answers with a text. A streamed answer waits `pause` seconds before each event."""

    text: str
    pause: float = 0.0


@dataclass(frozen=True, init=False)
class CallTools:
    """The model asks for tools, all in one turn, after the text `say` if there is one."""

    calls: tuple[ToolCall, ...]
    say: str
    pause: float

    def __init__(self, *calls: ToolCall, say: str = "", pause: float = 0.0) -> None:
        if not calls:
            raise UsageError("CallTools needs a call: CallTools((name, arguments, id), …)")
        object.__setattr__(self, "calls", calls)
        object.__setattr__(self, "say", say)
        object.__setattr__(self, "pause", pause)


Turn: TypeAlias = Say | CallTools
Scripted: TypeAlias = Turn | Callable[[Request], Turn]


def turn_of(script: Sequence[Scripted], request: Request) -> Turn:
    """The turn that answers `request`; functions are asked."""
    scripted = script[request.turn]
    turn = scripted if isinstance(scripted, Say | CallTools) else scripted(request)
    if not isinstance(turn, Say | CallTools):
        raise UsageError(
            f"turn {request.turn} of the script is neither Say nor CallTools: {turn!r}"
        )
    return turn


def script_from_json(text: str) -> list[Scripted]:
    """A script out of a file: a list of texts, `{"say": …}` and `{"call": [[name, {…}, id], …]}`."""
    try:
        listed = json.loads(text)
    except ValueError as error:
        raise UsageError(f"the script is no JSON: {error}") from error
    if not isinstance(listed, list):
        raise UsageError("the script is a list of turns")
    return [_turn_from_json(number, written) for number, written in enumerate(listed)]


def _turn_from_json(number: int, written: object) -> Turn:
    match written:
        case str(text):
            return Say(text)
        case {"call": [_, *_] as calls, **rest} if set(rest) <= {"say", "pause"}:
            called = (_call_from_json(number, call) for call in calls)
            return CallTools(*called, say=str(rest.get("say", "")), pause=_pause(rest))
        case {"say": str(text), **rest} if set(rest) <= {"pause"}:
            return Say(text, pause=_pause(rest))
        case _:
            raise UsageError(
                f'turn {number} of the script is none: a text, {{"say": text}} or '
                f'{{"call": [[name, {{arguments}}, id], …]}}, not {written!r}'
            )


def _pause(rest: dict[Any, Any]) -> float:
    return float(rest.get("pause", 0.0))


def _call_from_json(number: int, written: object) -> ToolCall:
    match written:
        case [str(name), dict(arguments)]:
            return name, arguments
        case [str(name), dict(arguments), str(call_id)]:
            return name, arguments, call_id
        case _:
            raise UsageError(
                f"turn {number} of the script: a call is [name, {{arguments}}, id], not {written!r}"
            )
