"""The named queries of `lookups` and `reading`, on a server.

Those modules know a row of a run by one number: run number and sequence number packed. The tables
here have both as columns, so that they can be partitioned by the first. This is where the two
forms meet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast._store.lookups import Fetch
from holdfast._store.postgres.link import Link
from holdfast._store.records import SEQ_BITS, SEQ_MASK

_RANGES = frozenset({"entries", "chunk_range", "messages"})
_PACKED = _RANGES | {"entry_before", "all_chunks", "all_messages"}


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
        rows = fetch(name, values)
        if name not in _PACKED:
            return rows
        if name in {"messages", "all_messages"}:
            return [(_pack(row), row[0], *row[2:]) for row in rows]
        return [(_pack(row), *row[2:]) for row in rows]

    return fetched


def _pack(row: Any) -> int:
    packed_number: int = row[0] << SEQ_BITS | row[1]
    return packed_number
