"""OpenAI's Responses: `POST /v1/responses`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from holdfast.testing.models.answer import CREATED_S, Answer
from holdfast.testing.models.conversation import (
    ModelTurn,
    RefusedError,
    check_answered,
    check_ids,
    required,
    take_result,
)
from holdfast.testing.models.protocol import Body, OpenAI, event

# The mark of the answer that an item came from stands in its id.
_MARKED = re.compile(r"(?:msg|fc)_([0-9a-f]{24})_\d+")

_ENDS: dict[str, Body] = {
    "complete": {"status": "completed", "completed_at": CREATED_S},
    "incomplete": {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
    "failed": {"status": "failed", "error": {"code": "server_error", "message": "it gave up"}},
}


class Responses(OpenAI):
    """A request carries the whole conversation in `input`, or what is new after another response."""

    name = "responses"
    path = "/v1/responses"

    def previous_id(self, body: Body) -> str | None:
        """The response that this one goes on from."""
        previous_id: str | None = body.get("previous_response_id")
        return previous_id

    def keeps(self, body: Body) -> bool:
        """Unless `store` forbids it."""
        return body.get("store") is not False

    def lost(self, previous_id: str) -> RefusedError:
        """What OpenAI says of a response that it does not have."""
        return RefusedError(
            f"there is no response with the id {previous_id!r}", code="previous_response_not_found"
        )

    def read(self, body: Body, before: list[ModelTurn]) -> list[ModelTurn]:
        """A turn of the model is one item or several; each call has its output behind that turn."""
        required(body, "model", "input")
        if body.get("conversation"):
            raise RefusedError(
                "conversation: this server keeps none; send input, or go on from "
                "previous_response_id"
            )
        reader = _Reader(list(before))
        given: str | list[Body] = body["input"]
        for item in given if isinstance(given, list) else ():
            reader.take(item)
        check_answered(reader.turns)
        check_ids(reader.turns)
        return reader.turns

    def answer_id(self, answer: Answer) -> str:
        """The id of the response."""
        return f"resp_{answer.mark}"

    def spell(self, answer: Answer, body: Body) -> Body:
        """A response that has ended."""
        return {
            **self._head(answer, body),
            **_ENDS[answer.end],
            "output": _output(answer),
            "usage": _usage(answer),
        }

    def stream(self, answer: Answer, body: Body) -> Iterator[bytes]:
        """The events of a response, numbered from 0."""
        started: Body = {
            **self._head(answer, body),
            "status": "in_progress",
            "output": [],
            "usage": None,
        }
        plain: list[Body] = [
            {"type": "response.created", "response": started},
            {"type": "response.in_progress", "response": started},
            *_item_events(answer),
            {
                "type": f"response.{_ENDS[answer.end]['status']}",
                "response": self.spell(answer, body),
            },
        ]
        for number, data in enumerate(plain):
            yield event({**data, "sequence_number": number}, str(data["type"]))

    def _head(self, answer: Answer, body: Body) -> Body:
        return {
            "id": self.answer_id(answer),
            "object": "response",
            "created_at": CREATED_S,
            "error": None,
            "incomplete_details": None,
            "instructions": body.get("instructions"),
            "max_output_tokens": body.get("max_output_tokens"),
            "metadata": body.get("metadata") or {},
            "model": answer.model,
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "previous_response_id": body.get("previous_response_id"),
            "reasoning": {"effort": None, "summary": None},
            "store": body.get("store", True),
            "temperature": body.get("temperature", 1.0),
            "text": body.get("text") or {"format": {"type": "text"}},
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": body.get("tools") or [],
            "top_p": body.get("top_p", 1.0),
            "truncation": "disabled",
        }


class _Reader:
    """Goes through the items of a conversation."""

    def __init__(self, turns: list[ModelTurn]) -> None:
        self.turns = turns
        self._speaking = False  # Whether the item before was the model's.
        self._mark: str | None = None  # The answer that the model's last item came from, if known.

    def take(self, item: Body) -> None:
        kind = str(item.get("type") or "message")
        if kind == "item_reference":
            raise RefusedError("item_reference: this server keeps no items; send the item itself")
        if kind.endswith("_output"):
            take_result(self.turns, str(item.get("call_id")))
            self._speaking = False
        elif kind == "message" and item.get("role") != "assistant":
            self._speaking = False
        elif kind.endswith("_call") or kind in {"message", "reasoning"}:
            self._model_item(item, kind)

    def _model_item(self, item: Body, kind: str) -> None:
        found = _MARKED.fullmatch(str(item.get("id")))
        mark = found[1] if found else None
        known = mark is not None and self._mark is not None
        if not (mark == self._mark if known else self._speaking):
            check_answered(self.turns)
            self.turns.append(ModelTurn())
        if kind.endswith("_call") and "call_id" in item:
            self.turns[-1].calls.append(str(item["call_id"]))
        self._speaking, self._mark = True, mark


def _output(answer: Answer) -> list[dict[str, Any]]:
    status = "completed" if answer.end == "complete" else "incomplete"
    items: list[dict[str, Any]] = []
    if answer.text or not answer.calls:
        items.append(
            {
                "id": f"msg_{answer.mark}_0",
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": [_part(answer.text)],
            }
        )
    items.extend(
        {
            "id": f"fc_{answer.mark}_{place}",
            "type": "function_call",
            "status": status,
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }
        for place, call in enumerate(answer.calls)
    )
    return items


def _part(text: str) -> Body:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _item_events(answer: Answer) -> Iterator[Body]:
    pieces = {call.id: call.pieces for call in answer.calls}
    for index, item in enumerate(_output(answer)):
        place = {"item_id": item["id"], "output_index": index}
        empty: Body = {"content": []} if item["type"] == "message" else {"arguments": ""}
        added = {**item, "status": "in_progress", **empty}
        yield {"type": "response.output_item.added", "output_index": index, "item": added}
        if item["type"] == "message":
            yield from _text_events(answer, {**place, "content_index": 0})
        else:
            yield from _argument_events(item, pieces[item["call_id"]], place)
        yield {"type": "response.output_item.done", "output_index": index, "item": item}


def _text_events(answer: Answer, place: Body) -> Iterator[Body]:
    kind = "response.output_text"
    yield {"type": "response.content_part.added", **place, "part": _part("")}
    for piece in answer.pieces:
        yield {"type": f"{kind}.delta", **place, "delta": piece, "logprobs": []}
    yield {"type": f"{kind}.done", **place, "text": answer.text, "logprobs": []}
    yield {"type": "response.content_part.done", **place, "part": _part(answer.text)}


def _argument_events(item: Body, pieces: tuple[str, ...], place: Body) -> Iterator[Body]:
    kind = "response.function_call_arguments"
    for piece in pieces:
        yield {"type": f"{kind}.delta", **place, "delta": piece}
    whole = {"name": item["name"], "arguments": item["arguments"]}
    yield {"type": f"{kind}.done", **place, **whole}


def _usage(answer: Answer) -> Body:
    return {
        "input_tokens": answer.input_tokens,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": answer.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": answer.input_tokens + answer.output_tokens,
    }
