"""Remove checkpoints, and copy threads.

A removal holds the thread (see shelf.py), and lists rows before it decides: first the separate
values, then the names of places, then checkpoints and writes. A row that is written after a list is
not in it, or has another version than in it, and each row is removed only in the listed version.
Checkpoints are removed first and unneeded values afterwards, so that a kill in between leaves no
unreadable checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from holdfast.errors import StoreError
from holdfast.integrations.langgraph import keys
from holdfast.integrations.langgraph.blobs import refs
from holdfast.integrations.langgraph.checkpoint_rows import Entry, Kept, Reader, doc_refs
from holdfast.integrations.langgraph.compression import parts
from holdfast.integrations.langgraph.keys import Place
from holdfast.integrations.langgraph.shelf import TRIES, Shelf, whole

AT_ONCE = 500
"""How many rows are removed in one update."""

Choose = Callable[[list[Kept]], Iterable[Kept]]
Held = dict[str, int]


def remove(shelf: Shelf, thread: str, choose: Choose) -> None:
    """Remove the chosen checkpoints of each place of a thread, with the writes after them. `choose`
    receives the checkpoints newest first. Checkpoints that were based on removed ones become
    complete."""
    _persistently(shelf, thread, lambda held: _removed(shelf, thread, choose, held))


def remove_all(shelf: Shelf, thread: str) -> None:
    """Remove all rows of a thread, even damaged ones."""
    _persistently(shelf, thread, lambda held: _removed_all(shelf, thread, held))


def _persistently(shelf: Shelf, thread: str, work: Callable[[Held], bool]) -> None:
    for _ in range(TRIES):
        with shelf.rewriting(thread) as held:
            shelf.forget()
            done = work(held)
            shelf.forget()
        if done:
            return
    raise StoreError(
        f"nothing was removed from thread {thread!r}: others changed the same rows {TRIES} times "
        "meanwhile; try again"
    )


def _removed_all(shelf: Shelf, thread: str, held: Held) -> bool:
    free = _values(shelf, thread)
    folder = keys.thread_digest(thread) + "."
    free += shelf.memory.items(f"n/{folder}")
    kinds = ("w/", "p/c/", "p/w/")
    earlier = {row.key for kind in kinds for row in shelf.memory.items(kind + folder)}
    rows = shelf.memory.items(f"c/{folder}")  # In a place, children sort before their parents.
    gone = {row.key.partition("/")[2] for row in rows}
    # The writes of a checkpoint that was written meanwhile stay.
    rows += [
        row
        for row in shelf.memory.items(f"w/{folder}")
        if row.key in earlier or row.key.split("/", 1)[1].rpartition("/")[0] in gone
    ]
    lost = {row.key for row in rows}
    for kind in kinds[1:]:
        parts_there = shelf.memory.items(kind + folder)
        rows += [it for it in parts_there if it.key in earlier or _whole_of(it.key) in lost]
    return _deleted(shelf, rows, held) and _dropped(shelf, free, held)


def _removed(shelf: Shelf, thread: str, choose: Choose, held: Held) -> bool:
    values = _values(shelf, thread)
    needed: set[str] = set()
    for name in shelf.memory.items(f"n/{keys.thread_digest(thread)}."):
        if not _removed_from(shelf, name, choose, held, needed):
            return False
    free = [row for row in values if row.key.removeprefix("p/").split("/")[2] not in needed]
    return _dropped(shelf, free, held)


def _removed_from(shelf: Shelf, name: Entry, choose: Choose, held: Held, needed: set[str]) -> bool:
    """Remove from one place, and add the values that the rest of it needs to `needed`."""
    place = Place(*name.value)
    there = list(Reader(shelf.memory, place).all())
    gone = list(choose(there))
    ids = {it.id for it in gone}
    left = [it for it in there if it.id not in ids]
    for part in _parts(gone):
        if not _removed_part(shelf, place, there, part, held):
            return False
    for it in left:
        needed |= doc_refs(it.doc)
    rows: list[Entry] = []
    writes = f"w/{place.folder}/"
    is_left_over = _left_over(left, there)
    for row in shelf.memory.items(writes):
        if is_left_over(row.key):
            rows.append(row)
        else:
            needed |= {ref for write in shelf.opened(row)["w"] for ref in refs(write[2])}
    lost = {row.key for row in rows} | {place.checkpoint(it.id) for it in gone}
    for prefix in (place.checkpoints, writes):
        rows += [it for it in shelf.memory.items(f"p/{prefix}") if _whole_of(it.key) in lost]
    return _deleted(shelf, rows, held) and (bool(left) or _dropped(shelf, [name], held))


def _left_over(left: list[Kept], there: list[Kept]) -> Callable[[str], bool]:
    """Return the test whether writes belong to a checkpoint that was removed, now or before. The
    writes of a checkpoint that is not written yet sort before all existing ones."""
    kept = {keys.newest_first(it.id) for it in left}
    known = {keys.newest_first(it.id) for it in there}
    newest = min((form for form in known if keys.is_ordered(form)), default="")

    def is_left_over(key: str) -> bool:
        form = key.split("/")[2]
        if form in known:
            return form not in kept
        return bool(newest) and keys.is_ordered(form) and form > newest

    return is_left_over


def _removed_part(
    shelf: Shelf, place: Place, there: list[Kept], gone: list[Kept], held: Held
) -> bool:
    ids = {it.id for it in gone}
    orphans = [it for it in there if it.id not in ids and it.parent in ids and it.changes]
    seen = {place.checkpoint(it.id): it.version for it in (*gone, *orphans)}
    values: dict[str, Any] = {}
    for it in orphans:
        values |= parts(place.checkpoint(it.id), whole(it))
    return shelf.memory.update(
        values, delete=[place.checkpoint(it.id) for it in gone], if_version=seen | held
    )


def _values(shelf: Shelf, thread: str) -> list[Entry]:
    prefix = keys.elements(thread)
    return [*shelf.memory.items(prefix), *shelf.memory.items(f"p/{prefix}")]


def _whole_of(part: str) -> str:
    """Return the key of the row that has a part under this key."""
    return part.removeprefix("p/").rpartition("/")[0]


def _deleted(shelf: Shelf, rows: list[Entry], held: Held) -> bool:
    """Remove rows in their listed version; return False if one of them has changed."""
    for part in _parts(rows):
        seen = {row.key: row.version for row in part}
        if not shelf.memory.update({}, delete=list(seen), if_version=seen | held):
            return False
    return True


def _dropped(shelf: Shelf, rows: list[Entry], held: Held) -> bool:
    """Remove rows that were not needed when they were listed. A row that was written again since is
    needed and stays. Return False if the thread is no longer held."""
    for part in _parts(rows):
        if not _deleted(shelf, part, held):
            for row in part:
                _deleted(shelf, [row], held)
    return all(shelf.memory.version(key) == version for key, version in held.items())


def copy(shelf: Shelf, source: str, target: str) -> None:
    """Copy all checkpoints of a thread and the writes after them, oldest first."""
    for place in shelf.places(source):
        values = shelf.values(source)
        goal = Place(target, place.ns)
        for kept in reversed(list(Reader(shelf.memory, place).all())):
            values.expect(doc_refs(kept.doc))
            shelf.put(goal, kept.id, kept.parent, kept.doc, doc_refs(kept.doc), values.get)
            for entry in shelf.memory.items(place.writes(kept.id)):
                row = shelf.opened(entry)
                shelf.put_writes(goal, kept.id, row["t"], row["w"], values.get)


def needed_for_deltas(there: list[Kept]) -> list[Kept]:
    """Return the newest checkpoint, and as many of its ancestors as its delta channels need."""
    if not there:
        return []
    by_id = {it.id: it for it in there}
    at: Kept | None = there[0]
    kept = [there[0]]
    open_channels = set(there[0].doc["m"].get("counters_since_delta_snapshot") or ())
    open_channels -= there[0].doc["x"].keys()
    while open_channels and at is not None and at.parent is not None:
        at = by_id.pop(at.parent, None)  # Parents may stand in a circle.
        if at is not None and at.id != there[0].id:
            kept.append(at)
            open_channels -= at.doc["x"].keys()
    return kept


def _parts(rows: list[Any]) -> list[list[Any]]:
    return [rows[at : at + AT_ONCE] for at in range(0, len(rows), AT_ONCE)]
