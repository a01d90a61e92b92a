"""Rows of checkpoints, read: a checkpoint is put together of its row and those that it stands on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import holdfast
from holdfast.integrations.langgraph import keys, patches, squeezing
from holdfast.integrations.langgraph.blobs import refs
from holdfast.integrations.langgraph.keys import Place

PAGE = 50

Doc = dict[str, Any]
Row = dict[str, Any]
Entry = Any
"""What a memory tells of a key."""


class Kept(NamedTuple):
    """A checkpoint as it was found."""

    id: str
    parent: str | None
    doc: Doc
    version: int
    """Of its row."""
    size: int
    """Of the last whole document on the way to it."""
    changes: int
    """How much was changed since."""
    refs: frozenset[str] | None = None
    """Which values apart it needs, if that was worked out before."""


def doc_refs(doc: Doc) -> frozenset[str]:
    """Return which values apart a document needs."""
    nodes = [*doc["x"].values(), *doc.get("o", {}).values()]
    return frozenset(ref for node in nodes for ref in refs(node))


class Reader:
    """Reads checkpoints of one place; what it has seen once it does not read again."""

    def __init__(self, memory: holdfast.Memory, place: Place) -> None:
        self._memory = memory
        self._place = place
        self._rows: dict[str, Entry] = {}
        self._opened: dict[str, Row] = {}
        self._docs: dict[str, Kept] = {}

    def find(self, checkpoint_id: str) -> Kept | None:
        """Return a checkpoint; None if there is none."""
        entry = self._entry(self._place.checkpoint(checkpoint_id))
        return None if entry is None else self._whole(entry)

    def newest(self) -> Kept | None:
        """Return the one with the highest id."""
        for entry in self._memory.list(self._place.checkpoints, limit=1):
            if keys.id_of(entry.key) is None:
                return next(self.all(), None)
            return self._whole(entry)
        return None

    def all(self, before: str | None = None) -> Iterator[Kept]:
        """Yield all from the newest on; with `before`, those with lower ids."""
        entries = self._memory.list(self._place.checkpoints)
        self._rows = {entry.key: entry for entry in entries}
        for entry in sorted(entries, key=self._id_of, reverse=True):
            if before is None or self._id_of(entry) < before:
                yield self._whole(entry)

    def _entry(self, key: str) -> Entry | None:
        return self._rows.get(key) or self._memory.entry(key)

    def _open(self, entry: Entry) -> Row:
        if entry.key not in self._opened:
            self._opened[entry.key] = opened(self._memory, entry)
        return self._opened[entry.key]

    def _id_of(self, entry: Entry) -> str:
        return keys.id_of(entry.key) or str(self._open(entry)["i"])

    def _whole(self, entry: Entry) -> Kept:
        """Return the checkpoint of a row: back to a whole document, and on from there."""
        way: list[Entry] = []
        at = entry
        while at.key not in self._docs and "b" in self._open(at):
            way.append(at)
            at = self._parent_of(at)
        kept = self._docs.get(at.key) or self._kept(at, self._open(at)["d"])
        self._docs[at.key] = kept
        for row in reversed(way):
            kept = self._kept(row, patches.apply(kept.doc, self._open(row)["b"]))
            self._docs[row.key] = kept
        return kept

    def _kept(self, entry: Entry, doc: Doc) -> Kept:
        row = self._open(entry)
        name = self._id_of(entry)
        return Kept(name, row["p"], doc, entry.version, row["s"], row.get("n", 0))

    def _parent_of(self, entry: Entry) -> Entry:
        key = self._place.checkpoint(self._open(entry)["p"])
        if key not in self._rows:  # The parent mostly stands behind its child.
            page = self._memory.list(self._place.checkpoints, after=entry.key, limit=PAGE)
            self._rows |= {entry.key: entry for entry in page}
        found = self._entry(key)
        if found is None:
            raise Changed(f"checkpoint {self._id_of(entry)}", why="its parent is gone")
        return found


class Values:
    """The values apart of one thread, read when they are asked for."""

    def __init__(self, memory: holdfast.Memory, thread: str) -> None:
        self._memory = memory
        self._prefix = keys.elements(thread)
        self._rows: dict[str, Any] = {}

    def expect(self, wanted: Iterable[str]) -> None:
        """Many are read at once, few one by one."""
        missing = {ref for ref in wanted if self._prefix + ref not in self._rows}
        if len(missing) > PAGE:
            self._rows |= {row.key: row.value for row in self._memory.list(self._prefix)}

    def get(self, ref: str) -> tuple[str, bytes]:
        """Return the type and the bytes of a value apart."""
        kind, length, data = self._row(self._prefix + ref)
        data = squeezing.joined(self._prefix + ref, data, self._row)
        return kind, data if len(data) == length else squeezing.unsqueezed(data, length)

    def _row(self, key: str) -> Any:
        if key not in self._rows:
            self._rows[key] = present(self._memory, key)
        return self._rows[key]


class Changed(holdfast.errors.Corrupt):
    """What is read was removed meanwhile; if it happens again, it is damaged."""


def opened(memory: holdfast.Memory, entry: Entry) -> Row:
    """Return what is in the row of a checkpoint, or of what a task wrote."""
    data = squeezing.joined(entry.key, entry.value, lambda key: present(memory, key))
    return dict(squeezing.row_value(data))


def present(memory: holdfast.Memory, key: str) -> Any:
    """Return a value that must be there."""
    found = memory.entry(key)
    if found is None:
        raise Changed("a checkpoint", why="one of its values is gone")
    return found.value
