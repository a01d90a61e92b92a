"""The named queries of `lookups` and `reading`, on a server.

Those modules know a row of a run by one number: run number and sequence number packed. The tables
here have both as columns, so that they can be partitioned by the first. This is where the two
forms meet. So are keys of memories, which are listed in order, also where they have a NUL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast._engine.journal.rows import SEQ_BITS, SEQ_MASK
from holdfast._stores.lookups import Fetch
from holdfast._stores.postgres.server_connection import Link

_RANGES = frozenset({"entries", "chunk_range"})
_BOTH_WAYS = frozenset({"messages_both_ways", "messages_since"})
_PACKED = _RANGES | {"entry_before", "all_chunks", "all_messages", "messages_by_ids"}
_MEMOS = frozenset({"memos", "all_memos"})


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
        elif name == "messages_both_ways":
            first, last, run_no = values
            values = (run_no, first & SEQ_MASK, last & SEQ_MASK, run_no)
        elif name == "messages_since":
            after, last, run_no, _ = values
            values = (run_no, after & SEQ_MASK, last & SEQ_MASK, run_no, after & SEQ_MASK)
        elif name == "memo_both_ways":
            values = (*values[:2], in_order(values[2]), values[3])
        return [packed_row(name, row) for row in fetch(name, values)]

    return fetched


def packed_row(name: str, row: Any) -> Any:
    """Return a row of a named query, with packed numbers."""
    if name in _BOTH_WAYS:
        found, run_no, number, *rest = row
        return (found, None if number is None else run_no << SEQ_BITS | number, run_no, *rest)
    if name == "memo_both_ways":
        return (*row[:3], as_given(row[3]), *row[4:])
    if name in _MEMOS:
        return (*row[:2], as_given(row[2]), *row[3:])
    if name not in _PACKED:
        return row
    if name in {"messages_by_ids", "all_messages"}:
        return (_pack(row), row[0], *row[2:])
    return (_pack(row), *row[2:])


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
