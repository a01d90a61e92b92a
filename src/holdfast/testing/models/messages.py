"""Anthropic's messages: `POST /v1/messages`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.testing.models.answer import Answer
from holdfast.testing.models.conversation import (
    ModelTurn,
    RefusedError,
    check_answered,
    check_ids,
    required,
    take_result,
)
from holdfast.testing.models.protocol import Body, Protocol, event

_ERROR_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    529: "overloaded_error",
}


class Messages(Protocol):
    """A request carries the whole conversation, or what is new in a `thread` that the server keeps."""

    name = "messages"
    path = "/v1/messages"
    id_header = "request-id"

    def check_headers(self, headers: dict[str, str]) -> None:
        """Refuse a request without a key, or without the version that it speaks."""
        bearer = headers.get("authorization", "").lower().startswith("bearer ")
        if not headers.get("x-api-key") and not bearer:
            raise RefusedError("x-api-key: this header is required", status=401)
        if not headers.get("anthropic-version"):
            raise RefusedError("anthropic-version: this header is required")

    def previous_id(self, body: Body) -> str | None:
        """The answer that a thread goes on from."""
        thread: Body = body.get("thread") or {}
        if thread.get("type") != "continue":
            return None
        return str(thread.get("previous_message_id"))

    def keeps(self, body: Body) -> bool:
        """Where a thread was asked for."""
        return bool(body.get("thread"))

    def lost(self, previous_id: str) -> RefusedError:
        """On this error the SDK sends the whole conversation again."""
        return RefusedError(
            f"there is no thread with the message {previous_id!r}",
            status=404,
            code="thread_not_found",
        )

    def read(self, body: Body, before: list[ModelTurn]) -> list[ModelTurn]:
        """Results stand at the beginning of the message behind the one with the calls."""
        required(body, "model", "max_tokens")
        if not before:
            required(body, "messages")
        elif repeated := [name for name in ("system", "tools") if name in body]:
            raise RefusedError(f"a thread that goes on has its {' and '.join(repeated)} already")
        turns = list(before)
        for message in body.get("messages") or ():
            if message.get("role") == "assistant":
                check_answered(turns)
                uses = [block for block in _blocks(message) if block.get("type") == "tool_use"]
                turns.append(ModelTurn([block["id"] for block in uses]))
                continue
            for call_id in _results(message):
                take_result(turns, call_id)
            check_answered(turns)
        check_answered(turns)
        check_ids(turns)
        return turns

    def answer_id(self, answer: Answer) -> str:
        """The id of the message."""
        return f"msg_{answer.mark}"

    def spell(self, answer: Answer, body: Body) -> Body:
        """A message of the assistant."""
        del body
        text = [{"type": "text", "text": answer.text}] if answer.text or not answer.calls else []
        uses = [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.parsed}
            for call in answer.calls
        ]
        return {
            "id": self.answer_id(answer),
            "type": "message",
            "role": "assistant",
            "model": answer.model,
            "content": [*text, *uses],
            "stop_reason": _stop_reason(answer),
            "stop_sequence": None,
            "usage": _usage(answer, answer.output_tokens),
        }

    def stream(self, answer: Answer, body: Body) -> Iterator[bytes]:
        """A message as events: its head, block by block, and why it stopped."""
        whole = self.spell(answer, body)
        head: Body = {**whole, "content": [], "stop_reason": None, "usage": _usage(answer, 1)}
        yield _event("message_start", message=head)
        yield _event("ping")
        pieces = {call.id: call.pieces for call in answer.calls}
        for index, block in enumerate(whole["content"]):
            if block["type"] == "text":
                empty: Body = {**block, "text": ""}
                deltas = [{"type": "text_delta", "text": piece} for piece in answer.pieces]
            else:
                empty = {**block, "input": {}}
                deltas = [
                    {"type": "input_json_delta", "partial_json": piece}
                    for piece in ("", *pieces[block["id"]])
                ]
            yield _event("content_block_start", index=index, content_block=empty)
            for delta in deltas:
                yield _event("content_block_delta", index=index, delta=delta)
            yield _event("content_block_stop", index=index)
        stop = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield _event("message_delta", delta=stop, usage={"output_tokens": answer.output_tokens})
        yield _event("message_stop")

    def spell_error(self, status: int, message: str, code: str | None = None) -> Body:
        """An error in Anthropic's shape."""
        error: dict[str, Any] = {
            "type": _ERROR_KINDS.get(status, "invalid_request_error"),
            "message": message,
        }
        if code:
            error["details"] = {"error_code": code}
        return {"type": "error", "error": error, "request_id": None}


def _blocks(message: Body) -> list[Body]:
    content: str | list[Body] | None = message.get("content")
    return content if isinstance(content, list) else []


def _results(message: Body) -> Iterator[str]:
    """Ids of the results in a message of the user; they stand before everything else."""
    ended = False
    for block in _blocks(message):
        if block.get("type") != "tool_result":
            ended = True
        elif ended:
            raise RefusedError("tool_result blocks must stand before all other blocks")
        else:
            yield str(block.get("tool_use_id"))


def _stop_reason(answer: Answer) -> str:
    if answer.end == "incomplete":
        return "max_tokens"
    return "tool_use" if answer.calls else "end_turn"


def _usage(answer: Answer, output_tokens: int) -> Body:
    return {
        "input_tokens": answer.input_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 0,
        "output_tokens": output_tokens,
        "service_tier": "standard",
    }


def _event(kind: str, **fields: object) -> bytes:
    return event({"type": kind, **fields}, kind)
