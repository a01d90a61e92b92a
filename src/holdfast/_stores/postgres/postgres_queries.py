"""Convert values and rows of the named statements between the form of all databases and the form of
the server's tables.

The operations identify an entry, a chunk or a message by one number: run number and sequence number
packed. The tables here have both as columns, so that they can be partitioned by the first. Keys of
memories are listed in order, even with a NUL, which the server's text type does not allow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast._engine.journal.rows import SEQ_BITS, SEQ_MASK

_KEYED = ("prefix", "after", "end")


def to_server(name: str, values: Any) -> Any:
    """Return the values of a statement in the server's form."""
    adapt = _VALUES.get(name)
    return values if adapt is None else adapt(values)


def from_server(name: str, row: Any) -> Any:
    """Return a row of a statement in the operations' form."""
    adapt = _ROWS.get(name)
    return row if adapt is None else adapt(row)


def adapts_rows(name: str) -> bool:
    """Return whether the rows of a statement have another form here."""
    return name in _ROWS


def in_order(key: str) -> str:
    """Return a key without NUL, with the order of all keys preserved."""
    return key.replace("\x01", "\x01\x02").replace("\x00", "\x01\x01")


def as_given(key: str) -> str:
    """Return the original of a key from `in_order`."""
    return key.replace("\x01\x01", "\x00").replace("\x01\x02", "\x01")


def _range(values: Any) -> Any:
    first, last = values
    return first >> SEQ_BITS, first & SEQ_MASK, last & SEQ_MASK


def _split(values: Any) -> Any:
    (at,) = values
    return at >> SEQ_BITS, at & SEQ_MASK


def _both_ways(values: Any) -> Any:
    first, last, run_no = values
    return run_no, first & SEQ_MASK, last & SEQ_MASK, run_no


def _since(values: Any) -> Any:
    after, last, run_no, _ = values
    return run_no, after & SEQ_MASK, last & SEQ_MASK, run_no, after & SEQ_MASK


def _added_message(values: Any) -> Any:
    return values[1], values[0] & SEQ_MASK, *values[2:]


def _taken_message(values: Any) -> Any:
    *set_to, at = values
    return *set_to, at >> SEQ_BITS, at & SEQ_MASK


def _memo(values: Any) -> Any:
    return *values[:2], in_order(values[2]), *values[3:]


def _listed_memos(values: Any) -> Any:
    keys = {name: values[name] and in_order(values[name]) for name in _KEYED}
    return {**values, **keys}


_VALUES: dict[str, Callable[[Any], Any]] = {
    "entries": _range,
    "chunk_range": _range,
    "newest_message": _range,
    "entry_before": _split,
    "messages_both_ways": _both_ways,
    "messages_since": _since,
    "add_message": _added_message,
    "take_message": _taken_message,
    "memo_both_ways": _memo,
    "put_memo": _memo,
    "lock_memo": _memo,
    "remove_memo": _memo,
    "list_memos": _listed_memos,
}


def _packed(row: Any) -> Any:
    return (row[0] << SEQ_BITS | row[1], *row[2:])


def _message(row: Any) -> Any:
    return (row[0] << SEQ_BITS | row[1], row[0], *row[2:])


def _message_of_both_ways(row: Any) -> Any:
    found, run_no, number, *rest = row
    return (found, None if number is None else run_no << SEQ_BITS | number, run_no, *rest)


def _read_memo(row: Any) -> Any:
    return (*row[:2], as_given(row[2]), *row[3:])


def _memo_of_both_ways(row: Any) -> Any:
    return (*row[:3], as_given(row[3]), *row[4:])


_ROWS: dict[str, Callable[[Any], Any]] = {
    "entries": _packed,
    "chunk_range": _packed,
    "entry_before": _packed,
    "newest_message": _packed,
    "all_chunks": _packed,
    "all_messages": _message,
    "message_by_id": _message,
    "messages_by_ids": _message,
    "messages_both_ways": _message_of_both_ways,
    "messages_since": _message_of_both_ways,
    "memo_both_ways": _memo_of_both_ways,
    "list_memos": _read_memo,
    "expired_memos": _read_memo,
    "expired_memos_of_space": _read_memo,
    "stale_memos": _read_memo,
    "all_memos": _read_memo,
}
