"""A turn of the script, ready for any protocol. Equal requests get equal answers."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from holdfast.errors import UsageError
from holdfast.testing.models.request import Request
from holdfast.testing.models.script import End, Turn

# Every answer was made at the same moment, so that answers to the same request are equal.
CREATED_S = 1_750_000_000

# The requested format of the answer is not part of the question.
_MANNER = {"stream", "stream_options"}

_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True)
class Call:
    """A tool call, its arguments as JSON text."""

    id: str
    name: str
    arguments: str

    @property
    def parsed(self) -> dict[str, Any]:
        """The arguments themselves."""
        arguments: dict[str, Any] = json.loads(self.arguments)
        return arguments

    @property
    def pieces(self) -> tuple[str, str]:
        """The arguments in two pieces, as a stream sends them."""
        middle = len(self.arguments) // 2
        return self.arguments[:middle], self.arguments[middle:]


@dataclass(frozen=True)
class Answer:
    """The model's next turn. `mark` is made of request and answer; IDs are made of it."""

    mark: str
    model: str
    text: str
    calls: tuple[Call, ...]
    input_tokens: int
    output_tokens: int
    pause: float
    end: End

    @property
    def pieces(self) -> list[str]:
        """The text word by word, as a stream sends it; a single word comes in two pieces."""
        words = re.findall(r"\S+\s*|\s+", self.text)
        if len(words) == 1 and len(self.text) > 1:
            middle = len(self.text) // 2
            return [self.text[:middle], self.text[middle:]]
        return words


def answer_to(request: Request, turn: Turn) -> Answer:
    """The turn as the answer to `request`."""
    if turn.end == "failed" and request.protocol != "responses":
        raise UsageError(f"{request.protocol} has no answer that failed; use server.fail_next()")
    calls = tuple(_calls(turn, request.turn))
    asked = {name: value for name, value in request.body.items() if name not in _MANNER}
    written = [
        turn.text,
        *(part for call in calls for part in (call.id, call.name, call.arguments)),
    ]
    question = msgspec.json.encode([request.protocol, request.turn, asked], order="sorted")
    return Answer(
        mark=hashlib.sha256(question + msgspec.json.encode(written)).hexdigest()[:24],
        model=str(request.body["model"]),
        text=turn.text,
        calls=calls,
        input_tokens=_tokens(len(question)),
        output_tokens=_tokens(sum(map(len, written))),
        pause=turn.pause,
        end=turn.end,
    )


def _calls(turn: Turn, number: int) -> Iterator[Call]:
    for place, (name, arguments, *given) in enumerate(turn.calls):
        call_id = given[0] if given else f"call_{number}_{place}"
        yield Call(str(call_id), name, json.dumps(arguments))


def _tokens(length: int) -> int:
    return max(1, length // _CHARACTERS_PER_TOKEN)
