"""Each message once: the values of one run, with large parts stored apart.

An agent hands its whole conversation to every step. Written out each time, a run of n messages takes
n² bytes. So every part whose node is long becomes a *chunk*, stored once per run and found again by
the hash of its node; and a long list is stored as the list it grew from plus its new elements:

    turn 1   chunk 1  "a long text"          chunk 2  {"prev": null, "len": 1, "items": [...]}
    turn 2   chunk 3  "another one"          chunk 4  {"prev": 2, "len": 2, "items": [...]}

A node depends on the value alone and not on where it stands. That is why a step's result is found
again when it comes back as an element of a list, inside a state, or as a field of a message.

To see that a list has only grown, its JSON is made in C and compared with that of the lists seen
last. Those are the *trunks*: the JSON of the longest list of a family, with a mark at the end of each
list that is a stored part of it.

Numbers only ever refer to smaller ones. So there are no cycles, whatever a damaged store may say.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from holdfast._core.codec import Refused, Writer, json_copy, plain_json, to_json
from holdfast._core.digest import Digester, list_end, list_state
from holdfast._core.known import KNOWN, Known
from holdfast._core.reader import Reader, damaged, from_json

INLINE_LIMIT_BYTES: Final = 512
LONG_LIST_ELEMENTS: Final = 16
TRUNKS_MAX_COUNT: Final = 8
TRUNKS_MAX_BYTES: Final = 16 * 1024 * 1024
CACHE_MAX_BYTES: Final = 8 * 1024 * 1024
STATES_KEPT: Final = 4
"""Digest states are kept for the last marks of a trunk: where lists usually go on from."""


class Mark:
    """The end of a stored list within the JSON of its trunk."""

    __slots__ = ("count", "end", "number", "state")

    def __init__(self, count: int, end: int, number: int, state: Any = None) -> None:
        self.count = count
        self.end = end
        self.number = number
        self.state = state


class Trunk:
    """The JSON of a list (of its elements, or of their nodes), and which beginnings are stored."""

    __slots__ = ("marks", "raw", "typed")

    def __init__(self, raw: bytes, marks: list[Mark], *, typed: bool) -> None:
        self.raw = raw
        self.marks = marks
        self.typed = typed

    def longest_in(self, raw: bytes) -> int:
        """How many of the marks are beginnings of this list too."""
        view = memoryview(self.raw)

        def differs(mark: Mark) -> bool:
            # After the same bytes a number could go on; after a comma or bracket nothing can.
            return not raw.startswith(view[: mark.end]) or raw[mark.end] not in b",]"

        if not differs(self.marks[-1]):
            return len(self.marks)
        return bisect_left(self.marks, True, key=differs)  # noqa: FBT003


class Values:
    """The values of one loaded run. Not for several threads at once."""

    def __init__(
        self,
        fetch: Callable[[int], Mapping[int, bytes]],
        known: Known = KNOWN,
        next_chunk: int = 1,
        inline_limit: int = INLINE_LIMIT_BYTES,
    ) -> None:
        self.known = known
        self.next_chunk = next_chunk
        self.inline_limit = inline_limit
        self.trunks: list[Trunk] = []
        self._fetch = fetch
        self._fresh: dict[int, bytes] = {}
        self._recent: dict[int, bytes] = {}
        self._recent_bytes = 0
        self._numbers: dict[bytes, int] = {}

    def encode(self, value: object, path: str) -> bytes:
        """The node of a value; its new chunks wait in `take_fresh`. Refused: nothing has changed."""
        return self._write(value, path, copying=False)[0]

    def copy(self, value: object, path: str) -> tuple[bytes, Any]:
        """The node, and the value that reading it would give."""
        return self._write(value, path, copying=True)

    def decode(self, node: bytes) -> Any:
        return ChunkReader(self).decode(node)

    def digest(self, value: object) -> bytes:
        """`digest.digest(value)`, but fast for a list that has grown."""
        return ListDigester(self).digest(value)

    def take_fresh(self) -> list[tuple[int, bytes]]:
        """The chunks that are not stored yet; they count as handed over."""
        fresh = list(self._fresh.items())
        self._fresh = {}
        for number, raw in fresh:
            self._keep(number, raw)
        return fresh

    def _write(self, value: object, path: str, *, copying: bool) -> tuple[bytes, Any]:
        writer = ChunkWriter(self, copying=copying)
        pair = writer.write(value, path)
        writer.commit()
        return pair

    # --- for the writer and the reader ----------------------------------------------------------

    def number_of(self, content: bytes) -> int | None:
        return self._numbers.get(content)

    def add(self, number: int, content: bytes, raw: bytes) -> None:
        self._numbers[content] = number
        self._fresh[number] = raw

    def chunk(self, number: int) -> bytes:
        """A chunk's bytes; from now on the same content is not stored again."""
        raw = self._fresh.get(number) or self._recent.get(number) or self._fetched(number)
        self._numbers.setdefault(content_hash(raw), number)
        return raw

    def _fetched(self, number: int) -> bytes:
        try:
            found = self._fetch(number)
            raw = found[number]
        except KeyError:
            raise damaged(f"its chunk {number} is missing") from None
        for near, bytes_ in found.items():
            self._keep(near, bytes_)
        return raw

    def _keep(self, number: int, raw: bytes) -> None:
        if number in self._recent:
            return
        self._recent[number] = raw
        self._recent_bytes += len(raw)
        while self._recent_bytes > CACHE_MAX_BYTES:
            self._recent_bytes -= len(self._recent.pop(next(iter(self._recent))))

    def grown_from(self, raw: bytes, *, typed: bool) -> tuple[Trunk | None, int]:
        """The trunk with the longest beginning of this list, and how many of its marks fit."""
        best: Trunk | None = None
        fitting = count = 0
        for trunk in self.trunks:
            if trunk.typed is typed and (n := trunk.longest_in(raw)):
                if trunk.marks[n - 1].count > count:
                    best, fitting, count = trunk, n, trunk.marks[n - 1].count
        return best, fitting

    def remember(self, trunk: Trunk, instead_of: Trunk | None = None) -> None:
        """Put a trunk in front; drop those that have not been used for longest."""
        self.trunks = [t for t in self.trunks if t is not instead_of and t is not trunk]
        self.trunks.append(trunk)
        size = 0
        for index in range(len(self.trunks) - 1, -1, -1):
            size += len(self.trunks[index].raw)
            if size > TRUNKS_MAX_BYTES or len(self.trunks) - index > TRUNKS_MAX_COUNT:
                # The newest stays, however large: it is the one that will grow.
                self.trunks = self.trunks[min(index + 1, len(self.trunks) - 1) :]
                break

    def remembers(self, number: int) -> bool:
        return any(mark.number == number for trunk in self.trunks for mark in trunk.marks[-2:])


class ChunkWriter(Writer):
    """Writes one value into a run. All it finds out waits until `commit`."""

    def __init__(self, values: Values, *, copying: bool) -> None:
        super().__init__(values.known, copying=copying)
        self._values = values
        self._limit = values.inline_limit
        self._next = values.next_chunk
        self._new: dict[bytes, tuple[int, bytes]] = {}
        self._grown: list[tuple[Trunk, Trunk | None]] = []
        self._references = 0

    def commit(self) -> None:
        for content, (number, raw) in self._new.items():
            self._values.add(number, content, raw)
        self._values.next_chunk = self._next
        for trunk, instead_of in self._grown:
            self._values.remember(trunk, instead_of)

    def text(self, value: str) -> bytes:
        raw = self._text(value)
        return raw if len(raw) < self._limit else self._chunk(raw)

    def is_small(self, raw: bytes) -> bool:
        return len(raw) < self._limit and super().is_small(raw)

    def place(self, node: bytes) -> bytes:
        """A chunk, if it is long; also a shorter one that consists mostly of a reference to a text.

        Such a one is usually a message, and will come back in a list.
        """
        size = len(node)
        if size >= self._limit:
            return self._chunk(node)
        if size >= self._limit // 4 and b'{"chunk":' in node and b'{"list":' not in node:
            return self._chunk(node)
        return node

    def plain(self, value: Any, raw: bytes) -> bytes:
        if len(raw) < self._limit:
            return super().plain(value, raw)
        if type(value) is list:
            return self._plain_list(cast("list[Any]", value), raw)
        before = self._references
        items = [b"%b:%b" % (self._text(k), self._plain_part(v)) for k, v in value.items()]
        if self._references == before:  # Nothing inside is long by itself: the whole is one chunk.
            return self._chunk(b'{"plain":%b}' % raw)
        return self.place(b'{"dict":{%b}}' % b",".join(items))

    def _plain_part(self, value: Any) -> bytes:
        kind = type(value)
        if kind is str:
            return self.text(value)
        raw = to_json(value)
        return self.plain(value, raw) if kind is dict or kind is list else raw

    def _plain_list(self, value: list[Any], raw: bytes) -> bytes:
        trunk, fitting = self._values.grown_from(raw, typed=False)
        old = trunk.marks[fitting - 1] if trunk else None
        self.count(raw)
        if old is not None and old.count == len(value):
            return self._list_reference(old.number)
        items = value[old.count :] if old else value
        nodes = self._plain_nodes(items)
        number = self._list_number(old, len(value), nodes)
        mark = Mark(len(value), len(raw) - 1, number)
        if old is not None and old.state is not None:
            mark.state = old.state.copy()
            Digester(self.known).extend(mark.state, items)
        self._grow(trunk, fitting, raw, mark, typed=False)
        return self._list_reference(number)

    def _plain_nodes(self, items: list[Any]) -> bytes:
        if not _MAY_BE_LONG.isdisjoint(map(type, items)):
            return b",".join(map(self._plain_part, items))
        return to_json(items)[1:-1]

    def listing(self, nodes: list[bytes]) -> bytes:
        """A list that is not plain, by the nodes of its elements."""
        raw = super().listing(nodes)
        if len(raw) < self._limit and len(nodes) <= LONG_LIST_ELEMENTS:
            if len(raw) < self._limit // 4 or b'{"chunk":' not in raw:
                return raw
        trunk, fitting = self._values.grown_from(raw, typed=True)
        old = trunk.marks[fitting - 1] if trunk else None
        if old is not None and old.count == len(nodes):
            return self._list_reference(old.number)
        items = nodes[old.count :] if old else nodes
        number = self._list_number(old, len(nodes), b",".join(items))
        mark = Mark(len(nodes), len(raw) - 1, number)
        self._grow(trunk, fitting, raw, mark, typed=True)
        return self._list_reference(number)

    def _grow(self, trunk: Trunk | None, fitting: int, raw: bytes, mark: Mark, *, typed: bool) -> None:
        marks = [*trunk.marks[:fitting], mark] if trunk else [mark]
        if len(marks) > STATES_KEPT:
            marks[-STATES_KEPT - 1].state = None
        # If it grew out of the middle, the other branch may grow again too: both are kept.
        at_the_end = trunk is not None and fitting == len(trunk.marks)
        self._grown.append((Trunk(raw, marks, typed=typed), trunk if at_the_end else None))

    def _list_number(self, old: Mark | None, length: int, items: bytes) -> int:
        prev = b"null" if old is None else b"%d" % old.number
        return self._store(b'{"prev":%b,"len":%d,"items":[%b]}' % (prev, length, items))

    def _list_reference(self, number: int) -> bytes:
        self._references += 1
        return b'{"list":%d}' % number

    def _chunk(self, node: bytes) -> bytes:
        self._references += 1
        return b'{"chunk":%d}' % self._store(node)

    def _store(self, raw: bytes) -> int:
        content = content_hash(raw)
        number = self._values.number_of(content)
        if number is not None:
            return number
        if content not in self._new:
            self._new[content] = (self._next, raw)
            self._next += 1
        return self._new[content][0]


class ChunkReader(Reader):
    """Reads one value of a run, and makes its lists known as trunks to grow from."""

    def __init__(self, values: Values) -> None:
        super().__init__(values.known)
        self._values = values
        self._below = values.next_chunk

    def chunk(self, number: Any) -> Any:
        tree = self._parsed(number)
        if type(tree) is dict and not tree.keys().isdisjoint(_REFERENCES):
            raise damaged(f"its chunk {number} is only a reference")
        return self._read_below(number, tree)

    def list_chunk(self, number: Any) -> list[Any]:
        return self._inside(ChunkReader._list, number)

    def _list(self, number: Any) -> list[Any]:
        links: list[tuple[int, list[Any], int]] = []
        at = number
        while at is not None:
            prev, length, items = _link(self._parsed(at, self._below if not links else links[-1][0]))
            links.append((at, items, length))
            at = prev
        value: list[Any] = []
        nodes: list[Any] = []
        for at, items, length in reversed(links):
            value += self._read_below(at, items, Reader.elements)
            nodes += items
            if len(value) != length:
                raise damaged(f"its list {at} has {len(value)} elements instead of {length}")
        self._remember(number, value, nodes)
        return value

    def _parsed(self, number: Any, below: int | None = None) -> Any:
        limit = self._below if below is None else below
        if type(number) is not int or not 0 < number < limit:
            raise damaged(f"it refers to chunk {number!r}, which cannot be: chunks before {limit}")
        raw = self._values.chunk(number)
        self.count(raw)
        return from_json(raw)

    def _read_below(
        self, number: int, tree: Any, read: Callable[[Any, Any], Any] = Reader.read
    ) -> Any:
        before, self._below = self._below, number
        value = read(self, tree)
        self._below = before
        return value

    def _remember(self, number: int, value: list[Any], nodes: list[Any]) -> None:
        if self._values.remembers(number):
            return
        raw = plain_json(value)
        typed = raw is None
        raw = to_json(nodes) if raw is None else raw
        mark = Mark(len(value), len(raw) - 1, number)
        self._values.remember(Trunk(raw, [mark], typed=typed))


def _link(tree: Any) -> tuple[int | None, int, list[Any]]:
    if type(tree) is not dict or tree.keys() != {"prev", "len", "items"}:
        raise damaged("a chunk of it that should hold a list does not")
    link = cast("dict[str, Any]", tree)
    if type(link["len"]) is not int or type(link["items"]) is not list:
        raise damaged("a chunk of it that should hold a list is malformed")
    return link["prev"], link["len"], link["items"]


class ListDigester(Digester):
    """Takes the digest of a list up where it stopped when the list was shorter."""

    def __init__(self, values: Values) -> None:
        super().__init__(values.known)
        self._values = values

    def list_form(self, value: list[Any], raw: bytes) -> bytes:
        trunk, fitting = self._values.grown_from(raw, typed=False)
        if trunk is None:
            return super().list_form(value, raw)
        mark = trunk.marks[fitting - 1]
        if mark.state is None:
            mark.state = list_state()
            self.extend(mark.state, value[: mark.count])
        if mark.count == len(value):
            return list_end(mark.state)
        state = mark.state.copy()
        self.extend(state, value[mark.count :])
        return list_end(state)


def content_hash(raw: bytes) -> bytes:
    return hashlib.blake2b(raw, digest_size=16).digest()


_MAY_BE_LONG = frozenset({str, dict, list})
_REFERENCES = frozenset({"chunk", "list"})
