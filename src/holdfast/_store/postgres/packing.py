"""The named queries of `lookups` and `reading`, on a server.

Those modules know a row of a run by one number: run number and sequence number packed. The tables
here have both as columns, so that they can be partitioned by the first. This is where the two
forms meet. So are keys of memories, which are listed in order, also where they have a NUL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast._store.lookups import Fetch
from holdfast._store.postgres.link import Link
from holdfast._store.records import SEQ_BITS, SEQ_MASK

_RANGES = frozenset({"entries", "chunk_range", "messages"})
_PACKED = _RANGES | {"entry_before", "all_chunks", "all_messages", "messages_by_ids"}
_MEMOS = frozenset({"memo_by_name", "memo_by_hash", "memos", "all_memos"})


def fetch_with(link: Link) -> Fetch:
    """Return a function that runs the named queries of `lookups` and `reading`."""
    return packed(link.fetch)


def packed(fetch: Callable[[str, Any], list[Any]]) -> Fetch:
    """Return the same function, with packed numbers."""

    def fetched(name: str, values: Any = ()) -> list[Any]:
        if name in _RANGES:
            first, last = values
            values = (first >> SEQ_BITS, first & SEQ_MASK, last & SEQ_MASK)
        elif name == "entry_before":
            (at,) = values
            values = (at >> SEQ_BITS, at & SEQ_MASK)
        elif name == "memo_by_name":
            values = (*values[:2], in_order(values[2]))
        rows = fetch(name, values)
        if name in _MEMOS:
            return [(*row[:2], as_given(row[2]), *row[3:]) for row in rows]
        if name not in _PACKED:
            return rows
        if name in {"messages", "messages_by_ids", "all_messages"}:
            return [(_pack(row), row[0], *row[2:]) for row in rows]
        return [(_pack(row), *row[2:]) for row in rows]

    return fetched


def _pack(row: Any) -> int:
    packed_number: int = row[0] << SEQ_BITS | row[1]
    return packed_number


def in_order(key: str) -> str:
    """Return a key without NUL, which the server has no text for, in such a way that the order of
    all keys stays as it is."""
    return key.replace("\x01", "\x01\x02").replace("\x00", "\x01\x01")


def as_given(key: str) -> str:
    """Return what `in_order` was given."""
    return key.replace("\x01\x01", "\x00").replace("\x01\x02", "\x01")
