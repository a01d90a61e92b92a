"""The statement that changes rows of runs and inserts their entries and chunks."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import Any

from holdfast._engine.journal.entries import Entry
from holdfast._engine.journal.rows import Applied, RunRow
from holdfast._stores import row_codec
from holdfast._stores.postgres.server_connection import Link, Statement

APPEND = Statement("append")
APPEND_ONE = Statement("append_one")
START = Statement("start")
_GUARDS, _MOVED, _ROW, _ENTRY, _CHUNK = 4, 26, 37, 11, 4

_moving = attrgetter(
    "lease_until_us", "last_seq", "head", "next_chunk", "current_step", "steps", "attempts",
    "usage", "updated_us", "digest",
)  # fmt: skip
_still = attrgetter(
    "flow", "version", "status", "held_reason", "generation", "epoch", "owner", "input_digest",
    "degraded", "claims", "skips", "waiting_on", "wake_us", "tags",
    "heard", "deleted_us",
)  # fmt: skip
"""Together, all columns of a run's row that can change; the second part changes rarely."""


def send(
    link: Link,
    changes: Sequence[tuple[RunRow, Applied]],
    chunks: Sequence[tuple[int, int, bytes]],
) -> set[int]:
    """Change each row that is still as it was read, and insert its entries and chunks; return the
    numbers of the changed runs."""
    if not changes:
        return set()
    if len(changes) == 1 and not chunks:
        was, made = changes[0]
        if len(made.entries) == 1 and _still(was) == _still(made.row):
            return _send_one(link, was, made)
    guards = [(was.run_no, was.epoch, was.last_seq, was.digest) for was, _ in changes]
    rows = [row_codec.moved_values(made.row) for _, made in changes]
    entries = [_entry(made.row.run_no, entry) for _, made in changes for entry in made.entries]
    columns = [
        *_turned(guards, _GUARDS),
        *_turned(rows, _MOVED),
        *_turned(entries, _ENTRY),
        *_turned([_chunk(*chunk) for chunk in chunks], _CHUNK),
    ]
    return set(link.call(APPEND, APPEND.params(columns)))


def _send_one(link: Link, was: RunRow, made: Applied) -> set[int]:
    guard = (was.run_no, was.epoch, was.last_seq, was.digest)
    entry = _entry(was.run_no, made.entries[0])[1:]
    values = (*guard, *_moving(made.row), *entry)
    return set(link.call(APPEND_ONE, APPEND_ONE.params(values)))


def start(
    link: Link,
    made: Sequence[Applied],
    chunks: Sequence[tuple[int, int, bytes]],
) -> set[int]:
    """Insert new runs with their entries and chunks; return their numbers."""
    rows = [row_codec.run_values(run.row) for run in made]
    entries = [_entry(run.row.run_no, entry) for run in made for entry in run.entries]
    columns = [
        *_turned(rows, _ROW),
        *_turned(entries, _ENTRY),
        *_turned([_chunk(*chunk) for chunk in chunks], _CHUNK),
    ]
    return set(link.call(START, START.params(columns)))


def _entry(run_no: int, entry: Entry) -> tuple[Any, ...]:
    return (run_no, entry.seq, *row_codec.entry_values(run_no, entry)[1:])


def _chunk(run_no: int, number: int, body: bytes) -> tuple[Any, ...]:
    return (run_no, number, row_codec.chunk_digest(run_no, number, body), body)


def _turned(rows: Sequence[Sequence[Any]], width: int) -> list[Sequence[Any]]:
    """Return rows as columns, even without rows."""
    return list(zip(*rows, strict=True)) if rows else [()] * width
