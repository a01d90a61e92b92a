"""What a client asked, as the server noted it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Request:
    """One request for a model's answer.

    `headers` have names in lower case. `turn` is the turn of the script that the conversation asks
    for, counted from 0, and -1 where the request could not be read. `at` is the time of its arrival.
    """

    protocol: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    stream: bool
    turn: int
    at: float
