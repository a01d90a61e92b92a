"""OpenAI's chat completions: `POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.testing.models.answer import CREATED_S, Answer
from holdfast.testing.models.conversation import (
    ModelTurn,
    check_answered,
    required,
    take_result,
)
from holdfast.testing.models.protocol import Body, OpenAI, event


class Chat(OpenAI):
    """Each request carries the whole conversation in `messages`."""

    name = "chat"
    path = "/v1/chat/completions"

    def read(self, body: Body, before: list[ModelTurn]) -> list[ModelTurn]:
        """Results stand directly behind the message with the calls, one message each."""
        required(body, "model", "messages")
        turns = list(before)
        for message in body["messages"]:
            role = message.get("role")
            if role == "tool":
                take_result(turns, str(message.get("tool_call_id")))
                continue
            check_answered(turns)
            if role == "assistant":
                turns.append(ModelTurn([call["id"] for call in message.get("tool_calls") or ()]))
        check_answered(turns)
        return turns

    def answer_id(self, answer: Answer) -> str:
        """The id of the completion."""
        return f"chatcmpl-{answer.mark}"

    def spell(self, answer: Answer, body: Body) -> Body:
        """A completion with one choice."""
        del body
        message: dict[str, Any] = {
            "role": "assistant",
            "content": answer.text or None,
            "refusal": None,
            "annotations": [],
        }
        if answer.calls:
            message["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in answer.calls
            ]
        choice = {
            "index": 0,
            "message": message,
            "logprobs": None,
            "finish_reason": _finish_reason(answer),
        }
        return {
            **self._head(answer, "chat.completion"),
            "choices": [choice],
            "usage": _usage(answer),
        }

    def stream(self, answer: Answer, body: Body) -> Iterator[bytes]:
        """Chunks of a completion; the usage comes last if `stream_options` asks for it."""
        options: Body = body.get("stream_options") or {}
        with_usage = bool(options.get("include_usage"))
        head = self._head(answer, "chat.completion.chunk")
        end = {"usage": None} if with_usage else {}

        def chunk(delta: Body, finish_reason: str | None = None) -> bytes:
            choice = {
                "index": 0,
                "delta": delta,
                "logprobs": None,
                "finish_reason": finish_reason,
            }
            return event({**head, "choices": [choice], **end})

        yield chunk({"role": "assistant", "content": "" if answer.text else None, "refusal": None})
        for piece in answer.pieces:
            yield chunk({"content": piece})
        for delta in _call_deltas(answer):
            yield chunk({"tool_calls": [delta]})
        yield chunk({}, _finish_reason(answer))
        if with_usage:
            yield event({**head, "choices": [], "usage": _usage(answer)})
        yield b"data: [DONE]\n\n"

    def _head(self, answer: Answer, kind: str) -> Body:
        return {
            "id": self.answer_id(answer),
            "object": kind,
            "created": CREATED_S,
            "model": answer.model,
            "service_tier": "default",
            "system_fingerprint": "fp_scripted",
        }


def _call_deltas(answer: Answer) -> Iterator[Body]:
    for index, call in enumerate(answer.calls):
        yield {
            "index": index,
            "id": call.id,
            "type": "function",
            "function": {"name": call.name, "arguments": ""},
        }
        for piece in call.pieces:
            yield {"index": index, "function": {"arguments": piece}}


def _finish_reason(answer: Answer) -> str:
    if answer.end == "incomplete":
        return "length"
    return "tool_calls" if answer.calls else "stop"


def _usage(answer: Answer) -> Body:
    return {
        "prompt_tokens": answer.input_tokens,
        "completion_tokens": answer.output_tokens,
        "total_tokens": answer.input_tokens + answer.output_tokens,
        "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
        "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
    }
