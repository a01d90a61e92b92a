"""Stored values without the user's classes: as plain JSON data, and as one exact text.

The exact text is made from the stored bytes and shown unchanged, since a person approves it. A reader
that narrows numbers, as a browser does with 9007199254740993 or 1.0, has nothing to round. Values
without a JSON form name their kind: `{"decimal": "1.10"}`, `{"enum": "Color.RED"}`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec

from holdfast._engine.journal.rows import RunRow
from holdfast._engine.values.chunks import Values
from holdfast._engine.values.node_parts import from_json, parts_of
from holdfast._engine.values.node_reader import damaged
from holdfast._engine.values.scalars import LEAF_BY_TAG
from holdfast._stores import lineage
from holdfast._stores.contract import Store
from holdfast.errors import ClassChanged, Corrupt, RunError, StoreError

LISTS_KEPT = 4
"""A list that grew is described by its difference to one of the lists that were read last."""


class Reader:
    """Reads the values of one run."""

    def __init__(self, store: Store, row: RunRow) -> None:
        self.values = Values(lineage.chunks_of(store, row), next_chunk=max(row.next_chunk, 1))
        self._readable = Readable(self.values)

    def value(self, node: bytes, *, plain: bool) -> Any:
        """Return a value: decoded, or in the readable form if asked or if a class is not known."""
        if not plain:
            try:
                return self.values.decode(node)
            except (Corrupt, ClassChanged):
                # A class that this process does not know. Real damage is found again below.
                pass
        return self._readable.read(node)


def readable(node: bytes, values: Values) -> Any:
    """Return a stored value as plain JSON data; needs no class of the user."""
    return Readable(values).read(node)


class Readable:
    """Turns nodes into plain data. What is stored once is read once, and shared."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._chunks: dict[int, Any] = {}
        self._lists: dict[int, list[Any]] = {}

    def read(self, node: bytes) -> Any:
        try:
            return self._read(from_json(node))
        except (StoreError, RunError, MemoryError):
            raise
        except RecursionError:
            raise damaged("it is nested too deeply") from None
        except Exception as error:
            raise damaged(f"{type(error).__name__}: {error}") from None

    def _read(self, tree: Any) -> Any:
        if type(tree) is list:
            return self.elements(tree)
        if type(tree) is not dict:
            return tree
        if len(cast("dict[str, Any]", tree)) != 1:
            raise damaged("an object in it has not exactly one tag")
        [(tag, body)] = cast("dict[str, Any]", tree).items()
        read = _TAGS.get(tag)
        return read(self, body) if read is not None else self._leaf(tag, body)

    def plain(self, body: Any) -> Any:
        return body

    def named(self, body: Any) -> dict[str, Any]:
        return {name: self._read(part) for name, part in body.items()}

    def elements(self, body: Any) -> list[Any]:
        return [self._read(part) for part in body]

    def map(self, body: Any) -> Any:
        pairs = [(self._read(key), self._read(part)) for key, part in body]
        names = {_name(key) for key, _ in pairs}
        if None not in names and len(names) == len(pairs):
            return {_name(key): part for key, part in pairs}
        return [[key, part] for key, part in pairs]

    def object(self, body: Any) -> dict[str, Any]:
        name, *parts = body
        fields: dict[str, Any] = {}
        for part in parts:
            fields |= self.named(part)
        return {str(name): fields}

    def enum(self, body: Any) -> str:
        name, member = body
        return f"{name}.{'|'.join(map(str, parts_of(member))) or 0}"

    def chunk(self, number: Any) -> Any:
        if number not in self._chunks:
            tree = from_json(self._chunk_bytes(number))
            if type(tree) is dict and not cast("dict[str, Any]", tree).keys().isdisjoint(
                _REFERENCES
            ):
                raise damaged(f"its chunk {number} is only a reference")
            self._chunks[number] = self._read(tree)
        return self._chunks[number]

    def list(self, number: Any) -> list[Any]:
        links: list[tuple[int, list[Any]]] = []
        value: list[Any] = []
        at = number
        while at is not None:
            if at in self._lists:
                value = list(self._lists[at])
                break
            link = from_json(self._chunk_bytes(at))
            if link["prev"] is not None and not link["prev"] < at:
                raise damaged(f"its list {at} refers to a later one")
            links.append((at, link["items"]))
            at = link["prev"]
        for _, items in reversed(links):
            value += self.elements(items)
        self._lists[number] = value
        while len(self._lists) > LISTS_KEPT:
            del self._lists[next(iter(self._lists))]
        return list(value)

    def _chunk_bytes(self, number: Any) -> bytes:
        if type(number) is not int or not 0 < number < self._values.next_chunk:
            raise damaged(f"it refers to chunk {number!r}, which cannot be")
        return self._values.chunk(number)

    def _leaf(self, tag: str, body: Any) -> Any:
        leaf = LEAF_BY_TAG.get(tag)
        if leaf is None:
            raise damaged(
                f"it has the unknown tag {tag[:40]!r}; a newer Holdfast may have written it"
            )
        if tag in ("bytes", "bytearray"):
            return {tag: body}
        if tag in ("int", "float", "decimal", "uuid", "date"):
            return str(body)
        try:
            return str(leaf.unpack(body))
        except Exception:
            return body  # A time zone that this machine lacks is no reason to show nothing.


def _name(key: Any) -> str | None:
    """Return a key of a mapping as a name in JSON, if it can be one."""
    if key is None or type(key) in (str, int, float, bool):
        return str(key)
    return None


_REFERENCES = frozenset({"chunk", "list"})
_TAGS: dict[str, Callable[[Readable, Any], Any]] = {
    "plain": Readable.plain,
    "dict": Readable.named,
    "map": Readable.map,
    "tuple": Readable.elements,
    "set": Readable.elements,
    "frozenset": Readable.elements,
    "object": Readable.object,
    "model": Readable.object,
    "enum": Readable.enum,
    "chunk": Readable.chunk,
    "list": Readable.list,
}


# -- one exact text -----------------------------------------------------------------------------


INDENT = 2
TEXT_MAX_CHARS = 256 << 10


def text_of(store: Store, row: RunRow, node: bytes) -> str:
    """Return a stored value as indented JSON, every number with all its digits."""
    return indented_json(_Exact(Reader(store, row).values).read(node))


def indented_json(tree: Any) -> str:
    """Return a tree as text; what is far too long is cut, and says so."""
    text = msgspec.json.format(msgspec.json.encode(tree), indent=INDENT).decode()
    if len(text) <= TEXT_MAX_CHARS:
        return text
    left = len(text) - TEXT_MAX_CHARS
    return f"{text[:TEXT_MAX_CHARS]}\n… {left:,} more characters; the journal of the run has all"


def on_one_line(text: str) -> str:
    """Return such a text without its line breaks, for a terminal."""
    try:
        return msgspec.json.format(text, indent=-1)
    except msgspec.DecodeError:
        return text  # It was cut.


class _Exact(Readable):
    """Nothing but a string is shown as a string."""

    def _read(self, tree: Any) -> Any:
        value = super()._read(tree)
        return {"enum": value} if type(tree) is dict and "enum" in tree else value

    def _leaf(self, tag: str, body: Any) -> Any:
        value = super()._leaf(tag, body)
        if tag == "int":
            return msgspec.Raw(str(body).encode())
        return value if tag in ("bytes", "bytearray") else {tag: value}
