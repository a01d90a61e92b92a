"""Read and write rows of checkpoints in a memory, independently of LangGraph's interface.

A checkpoint is a document: its content (`c`), its metadata (`m`), the nodes of its values (`x`; see
blobs.py), and the parts of both that are not plain data (`o`). Its row has the complete document,
or the changes from its parent's, as long as reading them is cheap. Each write is one update that
names the rows on which it is based: if they have changed meanwhile, nothing is written, and the
write is computed again. So no kill and no other process can leave an unreadable checkpoint.

A checkpoint is either based on its parent (a patch, and values that the parent has stored), or
independent. A process that removes or replaces rows of a thread holds the row `r/T` meanwhile. A
checkpoint that is based on its parent is written only while nobody holds that row, in one
transaction with that check; a checkpoint written during a removal is independent and stores all its
values again. So the holder knows all rows that are based on another, and a value whose row has not
changed since it was listed is needed only by rows that were listed after it. The holder's own
writes require that it still holds the row: a holder that was presumed dead changes nothing any
more, and begins again.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections import OrderedDict
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

import holdfast
from holdfast.integrations.langgraph import compression, keys, patches
from holdfast.integrations.langgraph.blobs import refs
from holdfast.integrations.langgraph.checkpoint_rows import (
    Bytes,
    Changed,
    Doc,
    Entry,
    Kept,
    Reader,
    Row,
    Values,
    doc_refs,
    opened,
)
from holdfast.integrations.langgraph.compression import parts
from holdfast.integrations.langgraph.keys import Place

FAR = 8
"""A document is written completely when the changes since then have this many times its size."""
REMEMBERED = 64
REMEMBERED_BYTES = 32 * 1024 * 1024
"""How many checkpoints, and how many bytes of their values, are cached."""
TRIES = 20
HELD_S = 600
"""The maximum time for which one holder blocks removals by others."""
PATIENCE_S = 5.0
"""The time after which a holder is presumed dead. If it is alive, it begins again."""
LOOK_S = 0.02

Elements = Callable[[str], tuple[str, bytes]]
"""Separates the type and the bytes of a value."""


class Shelf:
    """All checkpoints of a store."""

    def __init__(self, memory: holdfast.types.Memory) -> None:
        self.memory = memory
        self._lock = threading.Lock()
        self._known: OrderedDict[str, Kept] = OrderedDict()
        self._named: set[str] = set()
        self._bytes = Bytes(REMEMBERED_BYTES)

    # -- writing -------------------------------------------------------------------------------

    def put(
        self,
        place: Place,
        checkpoint_id: str,
        parent: str | None,
        doc: Doc,
        needed: frozenset[str],
        elements: Elements,
    ) -> None:
        """Write a checkpoint completely or not at all. `needed` are its separate values."""
        key = place.checkpoint(checkpoint_id)
        alone = parent == checkpoint_id  # A checkpoint cannot be based on itself.
        base = None if alone else self._remembered(place, parent)
        for _ in range(TRIES):
            if base is None and parent is not None and not alone:
                base = self._base(place, parent)
            values, made = self._row(place, checkpoint_id, parent, doc, base)
            expected, known = {key: 0}, frozenset[str]()
            if base is not None:
                known = base.refs if base.refs is not None else doc_refs(base.doc)
                expected[place.checkpoint(base.id)] = base.version
                expected[keys.rewriting(place.thread)] = 0
            new = {ref: elements(ref) for ref in needed - known}
            values |= element_rows(place.thread, new)
            if self.memory.update(values, if_version=expected):
                for ref, element in new.items():
                    self._bytes.add(keys.elements(place.thread) + ref, *element)
                self._remember(key, made._replace(refs=needed))
                self._named.add(place.name)
                return
            base = None
            self._named.discard(place.name)
            alone = alone or self.memory.item(keys.rewriting(place.thread)) is not None
            if self._replaced(place, checkpoint_id, parent, doc, needed, elements):
                return
        raise _busy(f"checkpoint {checkpoint_id}")

    def _base(self, place: Place, parent: str) -> Kept | None:
        """Return the parent on which a checkpoint can be based; None if it is removed, or about to
        be."""
        try:
            return self.reader(place).find(parent)
        except Changed:
            return None

    def _row(
        self, place: Place, checkpoint_id: str, parent: str | None, doc: Doc, base: Kept | None
    ) -> tuple[dict[str, Any], Kept]:
        """Return the rows of a checkpoint without its values, and the checkpoint to remember."""
        patch = None if base is None else patches.diff(base.doc, doc)
        size, changes = 0, 0
        if base is not None:
            size, changes = base.size, base.changes + patches.weight(patch)
        if patch is None or changes > FAR * size:
            size, changes, patch = patches.weight(doc), 0, None
        row = row_of(checkpoint_id, parent, doc if patch is None else patch, size, changes)
        values = parts(place.checkpoint(checkpoint_id), row)
        if base is None or place.name not in self._named:
            values[place.name] = list(place)
        return values, Kept(checkpoint_id, parent, doc, 1, size, changes)

    def _replaced(
        self,
        place: Place,
        checkpoint_id: str,
        parent: str | None,
        doc: Doc,
        needed: frozenset[str],
        elements: Elements,
    ) -> bool:
        """Overwrite an existing checkpoint. Checkpoints that are based on it become complete."""
        key = place.checkpoint(checkpoint_id)
        before = Reader(self.memory, place).find(checkpoint_id)
        if before is None:
            return False
        if before.parent == parent and patches.same(before.doc, doc):
            return True
        with self.rewriting(place.thread) as held:
            reader = Reader(self.memory, place)
            before = reader.find(checkpoint_id)
            if before is None:
                return False
            values = parts(key, row_of(checkpoint_id, parent, doc, patches.weight(doc), 0))
            values |= element_rows(place.thread, {ref: elements(ref) for ref in needed})
            expected = {key: before.version, **held}
            for child in reader.all():
                if child.parent == checkpoint_id and child.changes:
                    values |= parts(place.checkpoint(child.id), whole(child))
                    expected[place.checkpoint(child.id)] = child.version
            self.forget()
            return self.memory.update(values, if_version=expected)

    @contextmanager
    def rewriting(self, thread: str) -> Generator[dict[str, int]]:
        """Hold a thread: inside, only the caller removes and replaces its rows. Yields the
        precondition of each of the caller's writes."""
        key, name = keys.rewriting(thread), uuid.uuid4().hex
        version = self._hold(key, name)
        try:
            yield {key: version}
        finally:
            self.memory.delete(key, if_version=version)

    def _hold(self, key: str, name: str) -> int:
        waited_for, since = 0, time.monotonic()
        while True:
            holder = self.memory.item(key)
            version = 0 if holder is None else holder.version
            if version != waited_for:
                waited_for, since = version, time.monotonic()
            if version and time.monotonic() - since < PATIENCE_S:
                time.sleep(LOOK_S)
            elif self.memory.set(key, name, ttl=HELD_S, if_version=version):
                mine = self.memory.item(key)
                if mine is not None and mine.value == name:
                    return int(mine.version)

    def put_writes(
        self,
        place: Place,
        checkpoint_id: str,
        task: str,
        writes: list[list[Any]],
        elements: Elements,
    ) -> None:
        """Record the writes of a task: number, channel, node, and the path of the task. An earlier
        write with the same number stays, except for numbers below 0, which are replaced."""
        key = place.task(checkpoint_id, task)
        version = 0
        before: list[list[Any]] = []
        for _ in range(TRIES):
            taken = {it[0] for it in before}
            new = [it for it in writes if it[0] < 0 or it[0] not in taken]
            renewed = {it[0] for it in new}
            rows = [*(it for it in before if it[0] not in renewed), *new]
            if not new:
                return
            needed = {ref for it in new for ref in refs(it[2])}
            values = element_rows(place.thread, {ref: elements(ref) for ref in needed})
            values |= parts(key, compression.row({"t": task, "w": rows}))
            if self.memory.update(values, if_version={key: version}):
                return
            found = self.memory.item(key)
            version, before = 0, []
            if found is not None:
                version, before = found.version, self.opened(found)["w"]
        raise _busy(f"the writes of task {task}")

    # -- recent writes -------------------------------------------------------------------------

    def _remembered(self, place: Place, checkpoint_id: str | None) -> Kept | None:
        if checkpoint_id is None:
            return None
        with self._lock:
            return self._known.get(place.checkpoint(checkpoint_id))

    def _remember(self, key: str, made: Kept) -> None:
        with self._lock:
            self._known[key] = made
            while len(self._known) > REMEMBERED:
                self._known.popitem(last=False)

    def forget(self) -> None:
        """Clear the cache, because rows were changed outside the usual writes."""
        with self._lock:
            self._known.clear()
            self._named.clear()

    # -- reading -------------------------------------------------------------------------------

    def places(self, thread: str | None = None) -> list[Place]:
        """Return the namespaces of a thread, or of all threads."""
        prefix = "n/" if thread is None else f"n/{keys.thread_digest(thread)}."
        return [Place(*entry.value) for entry in self.memory.items(prefix)]

    def reader(self, place: Place) -> Reader:
        """Return a reader of the checkpoints of a place, with a cache of those that were written
        here."""
        return Reader(self.memory, place, self._known.get)

    def remember(self, place: Place, kept: Kept) -> None:
        """Cache a checkpoint that was read."""
        self._remember(place.checkpoint(kept.id), kept)

    def values(self, thread: str) -> Values:
        """Return a reader of the separate values of a thread."""
        return Values(self.memory, thread, self._bytes)

    def opened(self, entry: Entry) -> Row:
        """Return the content of a row."""
        return opened(self.memory, entry)

    def writes(self, place: Place, checkpoint_id: str) -> list[tuple[str, str, Any]]:
        """Return (task, channel, node) of the writes after a checkpoint, in order."""
        rows = map(self.opened, self.memory.items(place.writes(checkpoint_id)))
        found = [(row["t"], *write) for row in rows for write in row["w"]]
        found.sort(key=lambda it: (it[4], it[0], it[1]))
        return [(task, channel, node) for task, _number, channel, node, _path in found]


def row_of(checkpoint_id: str, parent: str | None, doc: Any, size: int, changes: int) -> bytes:
    """Return the row of a checkpoint: a complete document, or a patch if there are changes."""
    row: Row = {"p": parent, "s": size, "b" if changes else "d": doc}
    if changes:
        row["n"] = changes
    if not keys.is_ordered(keys.newest_first(checkpoint_id)):
        row["i"] = checkpoint_id
    return compression.row(row)


def whole(kept: Kept) -> bytes:
    """Return the row of an independent checkpoint."""
    return row_of(kept.id, kept.parent, kept.doc, patches.weight(kept.doc), 0)


def element_rows(thread: str, elements: Mapping[str, tuple[str, bytes]]) -> dict[str, Any]:
    """Return the rows of separate values: type, length, and the bytes, deflated if that is
    shorter."""
    rows: dict[str, Any] = {}
    for ref, (kind, data) in elements.items():
        key = keys.elements(thread) + ref
        fewer = compression.squeezed(data)
        rows |= parts(key, fewer if len(fewer) < len(data) else data)
        rows[key] = [kind, len(data), rows[key]]
    return rows


def _busy(what: str) -> holdfast.errors.StoreError:
    return holdfast.errors.StoreError(
        f"{what} was not written: others changed the same thread {TRIES} times meanwhile; try again"
    )
