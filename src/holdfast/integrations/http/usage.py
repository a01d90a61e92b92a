"""What a model call used, read from answers in the shapes of OpenAI and Anthropic."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, cast

import msgspec

import holdfast
from holdfast.errors import UsageError

_NAMES = {"prompt_tokens": "input_tokens", "completion_tokens": "output_tokens"}
_COUNTED = ("input_tokens", "output_tokens")
_DATA = b"data:"


def note_usage(content_type: str, body: bytes) -> None:
    """Inside the step: say what the answer says of its tokens, if it does."""
    found: dict[str, Any] = {}
    if "event-stream" in content_type:
        for event in _events(body):
            _add(found, event)
    elif "json" in content_type:
        _add(found, _decoded(body))
    if any(name in found for name in _COUNTED):
        _count(found)


def _count(found: dict[str, Any]) -> None:
    """Numbers that nobody can count with (`10**30` tokens) must not spoil the answer they came with."""
    with contextlib.suppress(UsageError):
        holdfast.context.record_usage(
            model=found.get("model"),
            input_tokens=found.get("input_tokens", 0),
            output_tokens=found.get("output_tokens", 0),
        )


def _events(body: bytes) -> Iterator[Any]:
    for line in body.splitlines():
        if line.startswith(_DATA) and (b'"usage"' in line or b'"model"' in line):
            yield _decoded(line[len(_DATA) :])


def _add(found: dict[str, Any], said: Any) -> None:
    """Take in one object: an answer, a chunk, or an event that has an answer inside."""
    if not isinstance(said, dict):
        return
    told = cast("dict[str, Any]", said)
    for inner in ("response", "message"):  # Of OpenAI's Responses, and of Anthropic's messages.
        _add(found, told.get(inner))
    if isinstance(model := told.get("model"), str):
        found["model"] = model
    usage = told.get("usage")
    if not isinstance(usage, dict):
        return
    for said_name, amount in cast("dict[str, Any]", usage).items():
        name = _NAMES.get(said_name, said_name)
        if name in _COUNTED and type(amount) is int and amount >= 0:
            found[name] = amount  # Later events tell the sum, not more of it.


def _decoded(text: bytes) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
