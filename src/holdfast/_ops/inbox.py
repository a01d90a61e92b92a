"""What waits for a person: effects in doubt, with all that is needed to settle them.

Questions and approvals are in `people`; both together are the inbox.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast._core.history import History, Record
from holdfast._core.lifecycle import HeldReason, Status
from holdfast._core.moments import at
from holdfast._core.rows import RunRow, version_seen
from holdfast._ops import doubts as words, exact
from holdfast._ops.inspect import fold
from holdfast._ops.people import Unreadable
from holdfast._ops.readable import Reader
from holdfast._store.contract import Query, Store
from holdfast.errors import Corrupt

PAGE = 100


class DoubtView(msgspec.Struct, frozen=True):
    """An effect that may or may not have happened, in a run that is held for it."""

    run_id: str
    flow: str
    step: str
    args: Any
    """The stored arguments."""
    args_text: str | None
    """The same exactly as they are stored, as indented JSON."""
    key: str | None
    """The idempotency key that was shown to the other side."""
    digest: str | None
    """Of the arguments."""
    since: dt.datetime
    """When it was first started."""
    verdict: str
    """What the doubt is, in one sentence."""
    policy: str
    """What is declared for a doubt."""
    seen: str
    """What a decision brings back: the run as it was seen."""


def doubts(
    store: Store, limit: int = PAGE, unreadable: list[Unreadable] | None = None
) -> list[DoubtView]:
    """Return the effects in doubt of runs that are held for them, the newest runs first. A damaged
    run is left out, and told in `unreadable`."""
    found: list[DoubtView] = []
    query = Query(status=[Status.HELD], held_reason=HeldReason.IN_DOUBT.value, limit=PAGE)
    while len(found) < limit:
        rows = store.list(query)
        for row in rows:
            found += _of(store, row, unreadable)
            query.before_run_no = row.run_no
        if len(rows) < PAGE:
            break
    return found[:limit]


def doubts_of(store: Store, row: RunRow, past: History) -> list[DoubtView]:
    """Return the effects in doubt of one run."""
    return [_view(store, row, record) for record in past.open_doubts()]


def _of(store: Store, row: RunRow, unreadable: list[Unreadable] | None) -> Iterator[DoubtView]:
    try:
        yield from doubts_of(store, row, fold(store, row))
    except Corrupt as damage:  # The concern of `verify`, and no reason to show nothing.
        if unreadable is not None:
            unreadable.append(Unreadable(row.run_id, str(damage)))


def _view(store: Store, row: RunRow, record: Record) -> DoubtView:
    args = text = None
    first = record.intent or record.doubt
    if first is not None and "args" in first.data():
        node = bytes(first.data()["args"])
        args, text = Reader(store, row).value(node, plain=True), exact.text_of(store, row, node)
    return DoubtView(
        run_id=row.run_id,
        flow=row.flow,
        step=record.key,
        args=args,
        args_text=text,
        key=record.shown_key(),
        digest=None if record.args_digest is None else record.args_digest.hex(),
        since=at(record.first_started_us),
        verdict=words.verdict(record, record.key),
        policy=words.policy(record),
        seen=version_seen(row),
    )
