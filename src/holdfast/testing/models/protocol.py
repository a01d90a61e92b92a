"""What a protocol is: a way to read a conversation, and ways to spell answers and errors."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, ClassVar

from holdfast.testing.models.answer import Answer
from holdfast.testing.models.conversation import ModelTurn, RefusedError

Body = dict[str, Any]


class Protocol(ABC):
    """One of the protocols that providers speak."""

    name: ClassVar[str]
    path: ClassVar[str]
    # The header under which the provider returns the id of a request.
    id_header: ClassVar[str]

    @abstractmethod
    def check_headers(self, headers: dict[str, str]) -> None:
        """Refuse a request without credentials. Any credentials will do."""

    def previous_id(self, body: Body) -> str | None:
        """The answer that this request goes on from, where the provider keeps conversations."""
        del body
        return None

    def lost(self, previous_id: str) -> RefusedError:
        """The error for an unknown answer."""
        return RefusedError(f"there is no answer {previous_id!r} to go on from")

    def keeps(self, body: Body) -> bool:
        """Whether the provider keeps this conversation, so that a later request can go on from it."""
        del body
        return False

    @abstractmethod
    def read(self, body: Body, before: list[ModelTurn]) -> list[ModelTurn]:
        """The turns of the model up to now, those `before` included; refuses what is invalid."""

    @abstractmethod
    def answer_id(self, answer: Answer) -> str:
        """The id of the answer."""

    @abstractmethod
    def spell(self, answer: Answer, body: Body) -> Body:
        """The answer to `body` in one piece."""

    @abstractmethod
    def stream(self, answer: Answer, body: Body) -> Iterator[bytes]:
        """The answer to `body` as server-sent events."""

    @abstractmethod
    def spell_error(self, status: int, message: str, code: str | None = None) -> Body:
        """An error in the provider's shape."""


class OpenAI(Protocol):
    """What both protocols of OpenAI have in common."""

    id_header = "x-request-id"

    def check_headers(self, headers: dict[str, str]) -> None:
        """Refuse a request without a bearer token."""
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            raise RefusedError(
                "there is no API key in the Authorization header (Authorization: Bearer KEY)",
                status=401,
                code="invalid_api_key",
            )

    def spell_error(self, status: int, message: str, code: str | None = None) -> Body:
        """An error in OpenAI's shape."""
        kinds = {429: "requests", 500: "server_error", 503: "server_error", 529: "server_error"}
        codes = {429: "rate_limit_exceeded"}
        return {
            "error": {
                "message": message,
                "type": kinds.get(status, "invalid_request_error"),
                "param": None,
                "code": code or codes.get(status),
            }
        }


def event(data: Body, name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
