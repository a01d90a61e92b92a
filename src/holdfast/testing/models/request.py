"""A client's request, as the server noted it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast


@dataclass(frozen=True)
class Request:
    """One request for a model's answer.

    `headers` have names in lower case. `turn` is the turn of the script that the conversation asks
    for, counted from 0, and -1 for an unreadable request. `at` is the time of its arrival.
    """

    protocol: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    stream: bool
    turn: int
    at: float


def share_messages(body: dict[str, Any], before: dict[str, Any]) -> None:
    """Make messages that two requests have in common the same objects.

    Each request of a long conversation carries all of it, and all requests are kept.
    """
    for name in ("messages", "input"):
        new, old = body.get(name), before.get(name)
        if not (isinstance(new, list) and isinstance(old, list)):
            continue
        mine, theirs = cast("list[object]", new), cast("list[object]", old)
        for place, (one, other) in enumerate(zip(mine, theirs, strict=False)):
            if one != other:
                break
            mine[place] = other
