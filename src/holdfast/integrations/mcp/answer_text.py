"""Answers to an assistant: plain JSON, limited in size, escaped, without secrets.

The data of runs was written by models, tools and strangers. It may be long, and may contain
direction marks and invisible characters. Each such character is escaped.
"""

from __future__ import annotations

import json
import unicodedata
from typing import Any

import msgspec

import holdfast

ANSWER_CHARS = 30_000
"""The maximum length of an answer."""
ERROR_CHARS = 4000
"""The maximum length of an error, which may quote a text of the assistant itself."""
LEVELS = ((4000, 100), (1000, 50), (200, 25), (60, 10))
"""The limits of texts and lists; the next level applies while an answer is too long."""
DEPTH_MAX = 20
UNSEEN = "(not shown: a part above is cut, and must be seen before an approval)"
"""Replaces the values that a decision must send: the digest of arguments, the number of a
question."""
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_BLANK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
_SELECTORS = ((0xFE00, 0xFE0F), (0xE0100, 0xE01EF), (0x180B, 0x180F))
MORE = "history(run_id) has the number of each entry, and entry(run_id, seq, offset) its whole text"


def answer(**parts: Any) -> str:
    """Return an answer as JSON text within the length limit."""
    plain = _inert_in(msgspec.to_builtins(parts, enc_hook=str))
    text = ""
    for chars, items in LEVELS:
        text = json.dumps(_bounded(plain, chars, items, DEPTH_MAX), ensure_ascii=False)
        if len(text) <= ANSWER_CHARS:
            return text
    return f"{text[:ANSWER_CHARS]}… (cut: {len(text) - ANSWER_CHARS:,} more characters; {MORE})"


def json_text(value: Any) -> str:
    """Return data as JSON without secrets and invisible characters, of any length."""
    return json.dumps(_inert_in(msgspec.to_builtins(value, enc_hook=str)), ensure_ascii=False)


def inert(text: str) -> str:
    """Return text without secrets, with each invisible character escaped."""
    text = holdfast.redaction.redact(text)
    if text.isascii() and text.isprintable():
        return text
    return "".join(_escaped(char) if _is_hidden(char) else char for char in text)


def error_text(error: Exception) -> str:
    """Return the message of an error, escaped and cut to the limit."""
    text = inert(str(error))
    left = len(text) - ERROR_CHARS
    return text if left <= 0 else f"{text[:ERROR_CHARS]}… (cut: {left:,} more characters)"


def one_line(text: str) -> str:
    """Return text in which line breaks are escaped too."""
    return inert(text).replace("\n", "\\n")


def _inert_in(value: Any) -> Any:
    if isinstance(value, str):
        return inert(value)
    if isinstance(value, list):
        return [_inert_in(each) for each in value]
    if isinstance(value, dict):
        return {inert(str(name)): _inert_in(each) for name, each in value.items()}
    return value


def _bounded(value: Any, chars: int, items: int, depth: int) -> Any:
    if isinstance(value, str):
        if len(value) <= chars:
            return value
        return f"{value[:chars]}… (cut: {len(value) - chars:,} more characters; {MORE})"
    if isinstance(value, list | dict) and depth == 0:
        return f"… (cut: too deep; {MORE})"
    if isinstance(value, list):
        listed = [_bounded(each, chars, items, depth - 1) for each in value[:items]]
        left = len(value) - items
        return listed if left <= 0 else [*listed, f"… (cut: {left:,} more items; {MORE})"]
    if isinstance(value, dict):
        named = {
            _bounded(name, chars, items, depth): _bounded(each, chars, items, depth - 1)
            for name, each in list(value.items())[:items]
        }
        unseen = _unseen(value, named)
        if unseen is not None:
            named[unseen] = UNSEEN
        left = len(value) - items
        return named if left <= 0 else {**named, "…": f"(cut: {left:,} more fields; {MORE})"}
    return value


def _unseen(value: dict[str, Any], shown: dict[str, Any]) -> str | None:
    """Return the field to hide because the data that it identifies is cut."""
    if "digest" in value:
        # A question has its arguments twice; the text is complete.
        seals = "args" if value.get("args_text") is None else "args_text"
        if shown.get(seals) != value.get(seals):
            return "digest"
    if "number" in value and any(shown.get(it) != value.get(it) for it in ("text", "choices")):
        return "number"
    return None


def is_seen_whole(question: Any) -> bool:
    """Return whether a question is short enough to be shown in full."""
    return UNSEEN not in answer(questions=[question])


def _is_hidden(char: str) -> bool:
    if unicodedata.category(char) in _HIDDEN or char in _BLANK:
        return char != "\n"
    if char != " " and char.isspace():
        return char != "\n"
    return any(first <= ord(char) <= last for first, last in _SELECTORS)


def _escaped(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
