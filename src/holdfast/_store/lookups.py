"""Reads that must not be fooled by a damaged index, inside a transaction and outside.

An absence decides that a run is new or that an effect never happened, so it is confirmed by a
second path. `fetch` runs a named query: on a reading connection, or on the one that writes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from holdfast._core.rows import KeyState, RunRow
from holdfast._store import records
from holdfast._store.records import SEQ_BITS, SEQ_MASK, MessageRow
from holdfast.errors import Corrupt

Fetch = Callable[[str, Any], list[Any]]
LOOKS = 3


def find_run(fetch: Fetch, namespace: str, run_id: str) -> RunRow | None:
    """Return the verified row of a run, or None if it certainly is not there."""
    row = _run_by_id(fetch, namespace, run_id)
    if row is not None:
        return row
    by_hash = _rows(fetch, "run_by_hash", (records.name_hash(namespace, run_id),), run_id)
    for values in by_hash:
        row = records.run_row(values)
        if (row.namespace, row.run_id) == (namespace, run_id):
            # Another process may have started it between the two looks: look again.
            again = _run_by_id(fetch, namespace, run_id)
            if again is not None:
                return again
            raise Corrupt("the index of run ids", run_id=run_id, why="it does not show this run")
    return None


def _run_by_id(fetch: Fetch, namespace: str, run_id: str) -> RunRow | None:
    found = _rows(fetch, "run_by_id", (namespace, run_id), run_id)
    if not found:
        return None
    row = records.run_row(found[0])
    if (row.namespace, row.run_id) != (namespace, run_id):
        raise Corrupt("the index of run ids", run_id=run_id, why=f"it shows {row.run_id!r}")
    return row


def run_by_number(fetch: Fetch, run_no: int, last_run_no: int) -> RunRow | None:
    """Return the verified row of a run number; every number that was given is there."""
    found = _rows(fetch, "run_by_number", (run_no,), f"number {run_no}")
    if found:
        return records.run_row(found[0])
    if 1 <= run_no <= last_run_no:
        raise Corrupt("its row in runs", run_id=f"number {run_no}", why="it is not there")
    return None


def find_key(fetch: Fetch, namespace: str, effect: str, key: str) -> KeyState | None:
    """Return a verified key, or None if it certainly was never claimed."""
    state = _key_by_name(fetch, namespace, effect, key)
    if state is not None:
        return state
    for values in fetch("key_by_hash", (records.name_hash(namespace, effect, key),)):
        state = records.key_state(values)
        if (state.namespace, state.effect, state.key) == (namespace, effect, key):
            # Another process may have claimed it between the two looks: look again.
            again = _key_by_name(fetch, namespace, effect, key)
            if again is not None:
                return again
            raise Corrupt(f"the index of keys at {key!r} of {effect}", why="it does not show it")
    return None


def _key_by_name(fetch: Fetch, namespace: str, effect: str, key: str) -> KeyState | None:
    found = fetch("key_by_name", (namespace, effect, key))
    if not found:
        return None
    state = records.key_state(found[0])
    if (state.namespace, state.effect, state.key) != (namespace, effect, key):
        raise Corrupt(f"the index of keys at {key!r} of {effect}", why="it shows another one")
    return state


def messages(fetch: Fetch, run_no: int) -> Sequence[MessageRow]:
    """Return all messages of a run, oldest first, with none missing by either path."""
    for _ in range(LOOKS - 1):
        try:
            return _messages(fetch, run_no)
        except Corrupt:
            continue  # One may have come in between two looks: look again.
    return _messages(fetch, run_no)


def _messages(fetch: Fetch, run_no: int) -> Sequence[MessageRow]:
    first = run_no << SEQ_BITS
    found = fetch("messages", (first, first | SEQ_MASK))
    rows = [records.message_row(values) for values in found]
    if [row.id for row in rows] != list(range(first + 1, first + len(rows) + 1)):
        raise Corrupt(f"the inbox of run number {run_no}", why="a message is missing")
    names = Counter(values[0] for values in fetch("message_ids", (run_no,)))
    if names != Counter(row.message_id for row in rows):
        raise Corrupt(f"the inbox of run number {run_no}", why="its index shows other messages")
    return rows


def next_message(fetch: Fetch, run_no: int, message_id: str) -> int | None:
    """Return the number of the next message in an inbox, or None if this one is there already. What
    an index says wrongly here is found by who reads the inbox."""
    first = run_no << SEQ_BITS
    newest = fetch("newest_message", (first, first | SEQ_MASK))
    last = newest[0][0] & SEQ_MASK if newest else 0
    ((count, same),) = fetch("count_messages", (message_id, run_no))
    if count != last:
        messages(fetch, run_no)
        raise Corrupt(f"the inbox of run number {run_no}", why="its index shows other messages")
    return None if same else last + 1


def _rows(fetch: Fetch, name: str, values: Any, run_id: str) -> list[Any]:
    try:
        return fetch(name, values)
    except Corrupt as error:
        raise Corrupt(error.what, run_id=run_id, why=error.why) from error
