"""Look-ups that detect a damaged index, inside a transaction and outside.

An absence decides that a run is new or that an effect never happened, so it is confirmed through a
second path. One statement uses both paths, so that concurrent commits are not reported as damage.
`fetch` runs a named query: on a reading connection, or on the one that writes.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Any

from holdfast._engine.journal.rows import SEQ_BITS, SEQ_MASK, KeyState, MessageRow, RunRow
from holdfast._engine.values.masks import masked
from holdfast._stores import row_codec
from holdfast._stores.addresses import place
from holdfast._stores.contract import Store
from holdfast.errors import Corrupt, RunDeleted, RunNotFound

Fetch = Callable[[str, Any], list[Any]]


def find_run(fetch: Fetch, namespace: str, run_id: str) -> RunRow | None:
    """Return the verified row of a run, or None if it certainly does not exist."""
    at = (namespace, run_id)
    found = _rows(fetch, "run_both_ways", (*at, row_codec.name_hash(*at)), run_id)
    for _, *values in _of_way(found, shown=True):
        row = row_codec.run_row(values)
        if (row.namespace, row.run_id) != at:
            raise Corrupt("the index of run ids", run_id=run_id, why=f"it shows {row.run_id!r}")
        return row
    for _, *values in _of_way(found, shown=False):
        row = row_codec.run_row(values)
        if (row.namespace, row.run_id) == at:
            raise Corrupt("the index of run ids", run_id=run_id, why="it does not show this run")
    return None


def _of_way(found: list[Any], *, shown: bool) -> list[Any]:
    """Return the rows of one of the two paths: by name, or by hash."""
    return [values for values in found if bool(values[0]) is shown]


def run_by_number(fetch: Fetch, run_no: int, last_run_no: int) -> RunRow | None:
    """Return the verified row of a run number; every assigned number must exist."""
    found = _rows(fetch, "run_by_number", (run_no,), f"number {run_no}")
    if found:
        return row_codec.run_row(found[0])
    if 1 <= run_no <= last_run_no:
        raise Corrupt("its row in runs", run_id=f"number {run_no}", why="it is not there")
    return None


@contextlib.contextmanager
def unless_removed(by_number: Callable[[int], RunRow | None], run_no: int) -> Generator[None]:
    """Read data of a run: missing data is damage, unless the run was removed meanwhile. A removed
    origin of a fork is damage too: it must exist as long as its forks. Removal is final, so the
    check can follow the read."""
    try:
        yield
    except (Corrupt, RunDeleted):
        row = by_number(run_no)
        if row is not None and row.deleted_us is not None:
            raise RunDeleted(row.run_id) from None
        raise


def find_key(fetch: Fetch, namespace: str, effect: str, key: str) -> KeyState | None:
    """Return a verified key, or None if it certainly was never claimed."""
    at = (namespace, effect, key)
    found = fetch("key_both_ways", (*at, row_codec.name_hash(*at)))
    for _, *values in _of_way(found, shown=True):
        state = row_codec.key_state(values)
        if (state.namespace, state.effect, state.key) != at:
            raise Corrupt(f"the index of keys at {key!r} of {effect}", why="it shows another one")
        return state
    for _, *values in _of_way(found, shown=False):
        state = row_codec.key_state(values)
        if (state.namespace, state.effect, state.key) == at:
            raise Corrupt(f"the index of keys at {key!r} of {effect}", why="it does not show it")
    return None


def messages(fetch: Fetch, run_no: int) -> Sequence[MessageRow]:
    """Return all messages of a run, oldest first, checked through both paths."""
    first = run_no << SEQ_BITS
    found = fetch("messages_both_ways", (first, first | SEQ_MASK, run_no))
    rows = _in_order(run_no, found, first)
    names = Counter(values[3] for values in _of_way(found, shown=False))
    if names != Counter(row.message_id for row in rows):
        raise _other_messages(run_no)
    return rows


def messages_since(fetch: Fetch, run_no: int, after: int) -> Sequence[MessageRow]:
    """Return the messages of a run after a number, oldest first, checked through both paths. Reads
    only those."""
    first = run_no << SEQ_BITS
    found = fetch("messages_since", (first | after, first | SEQ_MASK, run_no, first | after))
    rows = _in_order(run_no, found, first | after)
    untaken = sorted(values[1] for values in _of_way(found, shown=False))
    if untaken != [row.id for row in rows if row.taken_seq is None]:
        raise _other_messages(run_no)
    return rows


def _in_order(run_no: int, found: list[Any], before: int) -> list[MessageRow]:
    """Return the verified messages after a number; every assigned number must exist."""
    rows = [row_codec.message_row(values) for _, *values in _of_way(found, shown=True)]
    rows.sort(key=lambda row: row.id)
    if [row.id for row in rows] != list(range(before + 1, before + len(rows) + 1)):
        raise Corrupt(f"the inbox of run number {run_no}", why="a message is missing")
    return rows


def _other_messages(run_no: int) -> Corrupt:
    return Corrupt(f"the inbox of run number {run_no}", why="its index shows other messages")


def find_message(fetch: Fetch, run_no: int, message_id: str) -> MessageRow | None:
    """Return a verified message, or None if the index of ids does not have it. Reads of the inbox
    detect a wrong index."""
    for values in fetch("message_by_id", (run_no, message_id)):
        row = row_codec.message_row(values)
        if (row.run_no, row.message_id) != (run_no, message_id):
            raise _other_messages(run_no)
        return row
    return None


def newest_number(fetch: Fetch, run_no: int) -> int:
    """Return the number of the newest message in an inbox, or 0."""
    first = run_no << SEQ_BITS
    newest = fetch("newest_message", (first, first | SEQ_MASK))
    return newest[0][0] & SEQ_MASK if newest else 0


def _rows(fetch: Fetch, name: str, values: Any, run_id: str) -> list[Any]:
    try:
        return fetch(name, values)
    except Corrupt as error:
        raise Corrupt(error.what, run_id=run_id, why=error.why) from error


def existing_row(store: Store, run_id: str) -> RunRow:
    """Return the row of a run, or raise RunNotFound."""
    row = store.get(run_id)
    if row is None:
        raise RunNotFound(masked(run_id), place(store.url, store.namespace))
    if row.deleted_us is not None:
        raise RunDeleted(run_id)
    return row
