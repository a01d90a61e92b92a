"""Journal entries as responses: one part at a time, limited in bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast._operator.read import run_views
from holdfast._operator.read.entry_views import EntryView
from holdfast._operator.web import request_models, response_models
from holdfast._operator.web.routes import Ask
from holdfast._stores.contract import Store
from holdfast._stores.lookups import existing_row

CLIPPED = "…clipped"
VALUE_BYTES = 64 << 10
"""Larger values are omitted, unless requested."""
ANSWER_BYTES = 8 << 20
"""The size at which an answer ends and returns a cursor for the next one."""
ENTRY_BYTES = 200
"""The estimated size of an entry without its values."""
READ_AT_ONCE, SOUGHT_AT_ONCE = 50, 2000


def history(ask: Ask) -> response_models.HistoryTold:
    """Show some entries of a journal; only this part is read."""
    asked: request_models.HistoryQuery = ask.query
    last = existing_row(ask.store, asked.id).last_seq
    chosen: list[response_models.EntryData] = []
    at, size = asked.after, 0
    for entry in _following(ask.store, asked, last):
        if asked.step in (None, entry.step):
            data = entry_data(entry, full=asked.full)
            size += size_of(data)
            if chosen and size > ANSWER_BYTES:
                break
            chosen.append(data)
        at = entry.seq
        if len(chosen) >= asked.limit:
            break
    else:
        at = last
    return response_models.HistoryTold(entries=chosen, next=at if at < last else None, last=last)


def _following(store: Store, asked: request_models.HistoryQuery, last: int) -> Iterator[EntryView]:
    """Yield the entries of a journal, read in parts."""
    at = asked.after
    part = min(READ_AT_ONCE, asked.limit) if asked.step is None else SOUGHT_AT_ONCE
    while at < last:
        found = run_views.history(store, asked.id, plain=True, after=at, limit=part)
        if not found:
            return
        yield from found
        at = found[-1].seq


def entry_data(entry: EntryView, *, full: bool = False) -> response_models.EntryData:
    """Return an entry as data, without large values."""
    body = {name: clipped(value, full=full) for name, value in entry.body.items()}
    return response_models.EntryData(
        entry.seq, entry.kind, entry.step, entry.attempt, entry.at, body
    )


def size_of(data: response_models.EntryData) -> int:
    """Return the approximate size of an entry."""
    parts = (len(bytes(it)) for it in data.body.values() if isinstance(it, msgspec.Raw))
    return sum(parts) + ENTRY_BYTES


def clipped(value: Any, *, full: bool, limit: int = VALUE_BYTES) -> Any:
    """Return a value, or its size in bytes if it is too large."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = msgspec.json.encode(value)
    return {CLIPPED: len(text)} if len(text) > limit and not full else msgspec.Raw(text)
