"""Read rows of checkpoints: a checkpoint is assembled from its row and the rows on which it is
based."""

from __future__ import annotations

import heapq
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import holdfast
from holdfast.integrations.langgraph import compression, keys, patches
from holdfast.integrations.langgraph.blobs import refs
from holdfast.integrations.langgraph.keys import Place

PAGE = 50

Doc = dict[str, Any]
Row = dict[str, Any]
Entry = Any
"""An item of the memory."""


class Kept(NamedTuple):
    """A checkpoint that was read."""

    id: str
    parent: str | None
    doc: Doc
    version: int
    """The version of its row."""
    size: int
    """The size of the last complete document on which it is based."""
    changes: int
    """The size of the changes since then."""
    refs: frozenset[str] | None = None
    """The separate values that it needs, if computed before."""


def doc_refs(doc: Doc) -> frozenset[str]:
    """Return the separate values that a document needs."""
    nodes = [*doc["x"].values(), *doc.get("o", {}).values()]
    return frozenset(ref for node in nodes for ref in refs(node))


class Reader:
    """Reads checkpoints of one place, and each row only once."""

    def __init__(
        self,
        memory: holdfast.types.Memory,
        place: Place,
        known: Callable[[str], Kept | None] = lambda _key: None,
    ) -> None:
        """`known` returns a checkpoint that was read or written before; it is used if its row has
        the same version."""
        self._memory = memory
        self._place = place
        self._known = known
        self._rows: dict[str, Entry] = {}
        self._opened: dict[str, Row] = {}
        self._docs: dict[str, Kept] = {}

    def find(self, checkpoint_id: str) -> Kept | None:
        """Return a checkpoint; None if there is none."""
        entry = self._entry(self._place.checkpoint(checkpoint_id))
        return None if entry is None else self._whole(entry)

    def newest(self) -> Kept | None:
        """Return the checkpoint with the highest id."""
        for entry in self._memory.items(self._place.checkpoints, limit=1):
            if keys.id_of(entry.key) is None:
                return next(self.all(), None)
            return self._whole(entry)
        return None

    def all(self, before: str | None = None) -> Iterator[Kept]:
        """Yield all checkpoints, newest first, page by page; with `before`, those with lower
        ids."""
        form = None if before is None else keys.newest_first(before)
        after = self._place.checkpoints + form if form and keys.is_ordered(form) else ""
        odd = self._memory.items(self._place.checkpoints + keys.UNORDERED)
        odd.sort(key=self._id_of, reverse=True)
        ordered = self._pages(self._place.checkpoints + keys.ORDERED, after)
        for entry in heapq.merge(odd, ordered, key=self._id_of, reverse=True):
            if before is None or self._id_of(entry) < before:
                yield self._whole(entry)

    def _pages(self, prefix: str, after: str) -> Iterator[Entry]:
        while page := self._memory.items(prefix, after=after, limit=PAGE):
            self._rows |= {entry.key: entry for entry in page}
            yield from page
            after = page[-1].key

    def _entry(self, key: str) -> Entry | None:
        return self._rows.get(key) or self._memory.item(key)

    def _open(self, entry: Entry) -> Row:
        if entry.key not in self._opened:
            self._opened[entry.key] = opened(self._memory, entry)
        return self._opened[entry.key]

    def _id_of(self, entry: Entry) -> str:
        return keys.id_of(entry.key) or str(self._open(entry)["i"])

    def _whole(self, entry: Entry) -> Kept:
        """Return the checkpoint of a row: go back to a complete document, then apply the
        patches."""
        way: list[Entry] = []
        at, met = entry, {entry.key}
        while not self._is_known(at) and "b" in self._open(at):
            way.append(at)
            at = self._parent_of(at)
            if at.key in met:
                raise Changed(f"checkpoint {self._id_of(entry)}", why="it is based on itself")
            met.add(at.key)
        kept = self._docs.get(at.key) or self._kept(at, self._open(at)["d"])
        self._docs[at.key] = kept
        for row in reversed(way):
            kept = self._kept(row, patches.apply(kept.doc, self._open(row)["b"]))
            self._docs[row.key] = kept
        return kept

    def _is_known(self, entry: Entry) -> bool:
        if entry.key in self._docs:
            return True
        known = self._known(entry.key)
        if known is None or known.version != entry.version:
            return False
        self._docs[entry.key] = known
        return True

    def _kept(self, entry: Entry, doc: Doc) -> Kept:
        row = self._open(entry)
        name = self._id_of(entry)
        return Kept(name, row["p"], doc, entry.version, row["s"], row.get("n", 0))

    def _parent_of(self, entry: Entry) -> Entry:
        key = self._place.checkpoint(self._open(entry)["p"])
        if key not in self._rows:  # The parent's row usually follows its child's.
            page = self._memory.items(self._place.checkpoints, after=entry.key, limit=PAGE)
            self._rows |= {entry.key: entry for entry in page}
        found = self._entry(key)
        if found is None:
            raise Changed(f"checkpoint {self._id_of(entry)}", why="its parent is missing")
        return found


class Bytes:
    """Recently read or written separate values, by key. A key contains the digest, so a value never
    changes; a value that a row refers to is in the store."""

    def __init__(self, limit: int) -> None:
        self._lock = threading.Lock()
        self._limit = limit
        self._size = 0
        self._found: OrderedDict[str, tuple[str, bytes]] = OrderedDict()

    def get(self, key: str) -> tuple[str, bytes] | None:
        """Return the type and the bytes of a value, if they are remembered."""
        return self._found.get(key)

    def add(self, key: str, kind: str, data: bytes) -> None:
        """Remember a value."""
        with self._lock:
            if key not in self._found:
                self._found[key] = kind, data
                self._size += len(data)
            while self._size > self._limit:
                self._size -= len(self._found.popitem(last=False)[1][1])


class Values:
    """The separate values of one thread, read on demand."""

    def __init__(self, memory: holdfast.types.Memory, thread: str, remembered: Bytes) -> None:
        self._memory = memory
        self._prefix = keys.elements(thread)
        self._remembered = remembered
        self._rows: dict[str, Any] = {}

    def expect(self, wanted: Iterable[str]) -> None:
        """Prefetch the values: many in pages, few one by one."""
        missing = {
            key
            for key in (self._prefix + ref for ref in wanted)
            if key not in self._rows and self._remembered.get(key) is None
        }
        if len(missing) > PAGE:
            self._rows |= {row.key: row.value for row in self._memory.items(self._prefix)}

    def get(self, ref: str) -> tuple[str, bytes]:
        """Return the type and the bytes of a separate value."""
        key = self._prefix + ref
        found = self._remembered.get(key)
        if found is None:
            kind, length, data = self._row(key)
            data = compression.joined(key, data, self._row)
            data = data if len(data) == length else compression.unsqueezed(data, length)
            self._remembered.add(key, kind, data)
            found = kind, data
        return found

    def _row(self, key: str) -> Any:
        if key not in self._rows:
            self._rows[key] = present(self._memory, key)
        return self._rows[key]


class Changed(holdfast.errors.Corrupt):
    """A row was removed while it was needed; if this repeats, the thread is damaged."""


def opened(memory: holdfast.types.Memory, entry: Entry) -> Row:
    """Return the content of the row of a checkpoint, or of a task's writes."""
    data = compression.joined(entry.key, entry.value, lambda key: present(memory, key))
    return dict(compression.row_value(data))


def present(memory: holdfast.types.Memory, key: str) -> Any:
    """Return a value that must exist."""
    found = memory.item(key)
    if found is None:
        raise Changed("a checkpoint", why="one of its values is missing")
    return found.value
