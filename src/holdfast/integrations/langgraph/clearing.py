"""Removing checkpoints, and copying threads.

Checkpoints go first and the values that nobody needs any more afterwards, so that a kill in between
leaves nothing that cannot be read. Each row is removed only as it was seen: what somebody has
written meanwhile stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from holdfast.errors import StoreError
from holdfast.integrations.langgraph import keys
from holdfast.integrations.langgraph.blobs import refs
from holdfast.integrations.langgraph.keys import Place
from holdfast.integrations.langgraph.rows import Kept, Reader, Values, doc_refs
from holdfast.integrations.langgraph.shelf import TRIES, Shelf, whole
from holdfast.integrations.langgraph.squeezing import parts

AT_ONCE = 200


def remove(shelf: Shelf, place: Place, choose: Callable[[list[Kept]], Iterable[Kept]]) -> None:
    """Remove the checkpoints that are chosen among those of a place, newest first; those that stood
    on them become whole."""
    shelf.forget()
    for _ in range(TRIES):
        there = list(Reader(shelf.memory, place).all())
        gone = {it.id: it for it in choose(there)}
        if all(_remove(shelf, place, there, part) for part in _parts(list(gone.values()))):
            break
    else:
        raise StoreError(f"thread {place.thread!r} is being written to; try again when it rests")
    left = [it.id for it in there if it.id not in gone]
    if not left:
        _drop(shelf, [it for it in shelf.memory.list(place.name) if it.key == place.name])
    _remove_writes(shelf, place, set(left))
    shelf.forget()


def _remove(shelf: Shelf, place: Place, there: list[Kept], gone: list[Kept]) -> bool:
    ids = {it.id for it in gone}
    orphans = [it for it in there if it.id not in ids and it.parent in ids and it.changes]
    seen = {place.checkpoint(it.id): it.version for it in (*gone, *orphans)}
    values: dict[str, Any] = {}
    for it in orphans:
        values |= parts(place.checkpoint(it.id), whole(it))
    return shelf.memory.update(
        values, delete=[place.checkpoint(it.id) for it in gone], if_version=seen
    )


def _remove_writes(shelf: Shelf, place: Place, left: set[str]) -> None:
    """Remove what was written after checkpoints that are no longer there."""
    kept = {place.writes(it) for it in left}
    rows = shelf.memory.list(f"w/{place.folder}/")
    _drop(shelf, [row for row in rows if row.key.rpartition("/")[0] + "/" not in kept])
    forms = {place.checkpoint(it) for it in left}
    rows = shelf.memory.list(f"p/{place.checkpoints}")
    _drop(shelf, [row for row in rows if row.key[2:].rpartition("/")[0] not in forms])
    rows = shelf.memory.list(f"p/w/{place.folder}/")
    _drop(shelf, [row for row in rows if row.key[2:].rsplit("/", 2)[0] + "/" not in kept])


def sweep(shelf: Shelf, thread: str) -> None:
    """Remove the values of a thread that nothing refers to. Whoever comes to need one again writes it
    again, and then it is no longer the row that was seen here."""
    prefix = keys.elements(thread)
    found = [*shelf.memory.list(prefix), *shelf.memory.list(f"p/{prefix}")]
    needed: set[str] = set()
    for place in shelf.places(thread):
        for kept in Reader(shelf.memory, place).all():
            needed |= doc_refs(kept.doc)
    for row in shelf.memory.list(f"w/{keys.thread_digest(thread)}."):
        needed |= {ref for write in shelf.opened(row)["w"] for ref in refs(write[2])}
    _drop(shelf, [row for row in found if row.key.removeprefix("p/").split("/")[2] not in needed])


def _drop(shelf: Shelf, rows: list[Any]) -> None:
    for part in _parts(rows):
        seen = {row.key: row.version for row in part}
        if not shelf.memory.update({}, delete=list(seen), if_version=seen):
            for row in part:  # One of them was written anew, and stays.
                shelf.memory.delete(row.key, if_version=row.version)


def copy(shelf: Shelf, source: str, target: str) -> None:
    """Copy all checkpoints of a thread and what was written after them, oldest first."""
    for place in shelf.places(source):
        values = Values(shelf.memory, source)
        goal = Place(target, place.ns)
        for kept in reversed(list(Reader(shelf.memory, place).all())):
            values.expect(doc_refs(kept.doc))
            shelf.put(goal, kept.id, kept.parent, kept.doc, doc_refs(kept.doc), values.get)
            for entry in shelf.memory.list(place.writes(kept.id)):
                row = shelf.opened(entry)
                shelf.put_writes(goal, kept.id, (row["t"], row["p"]), row["w"], values.get)


def needed_for_deltas(there: list[Kept]) -> list[Kept]:
    """Return the newest checkpoint, and of those that it stands on as many as its delta channels
    need to be put together."""
    if not there:
        return []
    by_id = {it.id: it for it in there}
    at: Kept | None = there[0]
    kept = [there[0]]
    open_channels = set(there[0].doc["m"].get("counters_since_delta_snapshot") or ())
    open_channels -= there[0].doc["x"].keys()
    while open_channels and at is not None and at.parent is not None:
        at = by_id.get(at.parent)
        if at is not None:
            kept.append(at)
            open_channels -= at.doc["x"].keys()
    return kept


def _parts(rows: list[Any]) -> list[list[Any]]:
    return [rows[at : at + AT_ONCE] for at in range(0, len(rows), AT_ONCE)]
