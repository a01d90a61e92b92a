"""Clients of the outside world. They are used by steps and never recorded: `resource(connect)`."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

MODEL = os.environ.get("RESEARCH_MODEL", "local-writer-1")
TIMEOUT_S = 30.0


@dataclass
class ToolCall:
    id: str
    query: str


@dataclass
class Message:
    """A message of a conversation, as a flow keeps it."""

    role: str
    content: str
    tool_calls: list[ToolCall] = field(default_factory=list)
    tool_call_id: str | None = None

    def to_wire(self) -> dict[str, Any]:
        wire: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.tool_calls:
            wire["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {
                        "name": "look_up",
                        "arguments": json.dumps({"query": call.query}),
                    },
                }
                for call in self.tool_calls
            ]
        if self.tool_call_id:
            wire["tool_call_id"] = self.tool_call_id
        return wire


@dataclass
class Reply:
    message: Message
    input_tokens: int
    output_tokens: int


class World:
    """Speaks HTTP to the model, the search engine and the publisher at one address."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def chat(self, messages: list[Message]) -> Reply:
        wire = {"model": MODEL, "messages": [message.to_wire() for message in messages]}
        answer = self._ask("POST", "/v1/chat/completions", wire)
        said = answer["choices"][0]["message"]
        calls = [
            ToolCall(call["id"], json.loads(call["function"]["arguments"])["query"])
            for call in said.get("tool_calls", [])
        ]
        message = Message("assistant", said["content"], calls)
        usage = answer["usage"]
        return Reply(message, usage["prompt_tokens"], usage["completion_tokens"])

    def search(self, query: str) -> list[str]:
        found: list[str] = self._ask("GET", f"/search?q={quote(query)}")["found"]
        return found

    def publish(self, report_id: str, text: str, key: str) -> str:
        body, headers = {"text": text}, {"Idempotency-Key": key}
        url: str = self._ask("POST", f"/reports/{quote(report_id)}", body, headers)["url"]
        return url

    def published(self, report_id: str) -> str | None:
        """Return where a report stands, or None if there is none."""
        try:
            url: str = self._ask("GET", f"/reports/{quote(report_id)}")["url"]
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise
            return None
        return url

    def unpublish(self, report_id: str) -> None:
        """Take a report back; one that is gone already is gone."""
        try:
            self._ask("DELETE", f"/reports/{quote(report_id)}")
        except urllib.error.HTTPError as error:
            if error.code != 404:
                raise

    def books(self) -> Any:
        return self._ask("GET", "/books")

    def clear(self) -> None:
        self._ask("POST", "/clear", {})

    def _ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path,
            data,
            {"Content-Type": "application/json", **(headers or {})},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)


def connect() -> World:
    return World(os.environ["RESEARCH_WORLD"])
