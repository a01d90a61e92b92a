"""Stored arguments as one exact text, for people who decide about them.

It is made of the stored bytes, and shown as it is: a reader that takes numbers for something smaller,
as a browser does with 9007199254740993 or 1.0, has nothing to round. What JSON has no word for is
told from a text by its kind: `{"decimal": "1.10"}`, `{"enum": "Color.RED"}`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast._core.rows import RunRow
from holdfast._ops.readable import Readable, Reader
from holdfast._store.contract import Store

INDENT = 2
TEXT_MAX_CHARS = 256 << 10


def text_of(store: Store, row: RunRow, node: bytes) -> str:
    """Return a stored value as indented JSON, every number with all its digits."""
    return written(_Exact(Reader(store, row).values).read(node))


def written(tree: Any) -> str:
    """Return a tree as text; what is far too long is cut, and says so."""
    text = msgspec.json.format(msgspec.json.encode(tree), indent=INDENT).decode()
    if len(text) <= TEXT_MAX_CHARS:
        return text
    left = len(text) - TEXT_MAX_CHARS
    return f"{text[:TEXT_MAX_CHARS]}\n… {left:,} more characters; the journal of the run has all"


def on_one_line(text: str) -> str:
    """Return such a text without its line breaks, for a terminal."""
    try:
        return msgspec.json.format(text, indent=-1)
    except msgspec.DecodeError:
        return text  # It was cut.


class _Exact(Readable):
    """Nothing is told as a text that is none."""

    def _read(self, tree: Any) -> Any:
        value = super()._read(tree)
        return {"enum": value} if type(tree) is dict and "enum" in tree else value

    def _leaf(self, tag: str, body: Any) -> Any:
        value = super()._leaf(tag, body)
        if tag == "int":
            return msgspec.Raw(str(body).encode())
        return value if tag in ("bytes", "bytearray") else {tag: value}
