"""Deduplication of a run's values: each message of a conversation is stored once.

An agent hands its whole conversation to every step. Written out each time, a run of n messages takes
n² bytes. So every part whose node is long becomes a *chunk*, stored once per run and found again by
the hash of its node; and a long list is stored as the list it grew from plus its new elements:

    turn 1   chunk 1  "a long text"          chunk 2  {"prev": null, "len": 1, "items": [...]}
    turn 2   chunk 3  "another one"          chunk 4  {"prev": 2, "len": 2, "items": [...]}

A node depends on the value alone and not on where it stands. That is why a step's result is found
again when it comes back as an element of a list, inside a state, or as a field of a message.

To see that a list has only grown, its JSON is made in C and compared with that of the lists seen
last (`Trunks`, for list prefixes); only the new elements are looked at one by one.

Numbers only ever refer to smaller ones. So there are no cycles, whatever a damaged store may say.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec

from holdfast._engine.values.class_codecs import class_of
from holdfast._engine.values.class_registry import KNOWN, Known
from holdfast._engine.values.digest import Digester, list_end, list_state
from holdfast._engine.values.node_parts import from_json
from holdfast._engine.values.node_reader import Reader, damaged
from holdfast._engine.values.node_writer import Writer, is_plain, surely_long, to_json
from holdfast._engine.values.redactor import Redact, redacted

INLINE_LIMIT_BYTES: Final = 512
LONG_LIST_ELEMENTS: Final = 16
CACHE_MAX_BYTES: Final = 8 * 1024 * 1024


class Link(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """The content of a chunk of a list: the list before, and the added elements."""

    prev: int | None
    len: int
    items: list[Any]


_read_link = msgspec.json.Decoder(Link).decode


class Values:
    """The values of one loaded run. Not thread-safe."""

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
        self.redact: Redact | None = None
        """Redacts values; digests are made of the originals."""
        self.trunks = Trunks()
        self._fetch = fetch
        self._fresh: dict[int, bytes] = {}
        self._recent: dict[int, bytes] = {}
        self._recent_bytes = 0
        self._numbers: dict[bytes, int] = {}

    def encode(self, value: object, path: str) -> bytes:
        """Return the node of a value; its new chunks wait in `take_fresh`. A refused value changes
        nothing."""
        if self.redact is not None:
            value = redacted(value, path, self.redact, self.known)
        if self.inline_limit == INLINE_LIMIT_BYTES:
            node = flat_node_of(value)
            if node is not None:
                return node
        return self._write(value, path, copying=False)[0]

    def copy(self, value: object, path: str) -> tuple[bytes, Any]:
        """Return the node, and the value that reading it would give."""
        if self.redact is not None:
            value = redacted(value, path, self.redact, self.known)
        if self.inline_limit == INLINE_LIMIT_BYTES:
            if class_of(value) is not dict:
                node = scalar_node_of(value)
                if node is not None:
                    return node, value
            else:
                node = flat_node_of(value)
                if node is not None:
                    return node, dict(value)  # type: ignore[call-overload]  # it is a dict of scalars
        return self._write(value, path, copying=True)

    def decode(self, node: bytes) -> Any:
        return ChunkReader(self).decode(node)

    def digest(self, value: object, path: str = "value") -> bytes:
        """`digest.digest(value)`, but fast for a list that has grown."""
        return flat_digest_of(value) or ListDigester(self).digest(value, path)

    def take_fresh(self) -> list[tuple[int, bytes]]:
        """Return the chunks that are not stored yet; they count as handed over."""
        fresh = list(self._fresh.items())
        self._fresh = {}
        for number, raw in fresh:
            self._keep(number, raw)
        return fresh

    def put_back(self, chunks: list[tuple[int, bytes]]) -> None:
        """Take chunks back that were handed over and refused: they go with the next write."""
        self._fresh = {**dict(chunks), **self._fresh}

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
        return self._fresh.get(number) or self._recent.get(number) or self._fetched(number)

    def remember(self, number: int, raw: bytes) -> None:
        """Remember the chunk of this content, so that it is not stored again."""
        self._numbers.setdefault(content_hash(raw), number)

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


class ChunkWriter(Writer):
    """Writes one value into a run. Its results take effect with `commit`."""

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
            self._values.trunks.put(trunk, instead_of)

    def text(self, value: str) -> bytes:
        raw = self._text(value)
        return raw if len(raw) < self._limit else self._chunk(raw)

    def is_small(self, raw: bytes) -> bool:
        return len(raw) < self._limit and super().is_small(raw)

    def place(self, node: bytes) -> bytes:
        """Return a chunk for a long node, and for a shorter one that is mostly a reference to a
        text.

        The latter is usually a message, which will come back in a list.
        """
        size = len(node)
        if size >= self._limit:
            return self._chunk(node)
        if size >= self._limit // 8 and b'{"chunk":' in node and b'{"list":' not in node:
            return self._chunk(node)
        return node

    def plain(self, value: Any) -> bytes:
        raw = None if surely_long(value, self._limit) else to_json(value)
        if raw is not None and len(raw) < self._limit:
            self.count(raw)
            return b'{"plain":%b}' % raw
        if class_of(value) is list:
            return self._plain_list(value)
        before = self._references
        items = [b"%b:%b" % (to_json(k), self._plain_part(v)) for k, v in value.items()]
        if self._references == before:  # No part is long by itself: the whole is one chunk.
            return self._chunk(b'{"plain":%b}' % (raw or to_json(value)))
        return self.place(b'{"dict":{%b}}' % b",".join(items))

    def _plain_part(self, value: Any) -> bytes:
        kind = class_of(value)
        if kind is dict or kind is list:
            return self.plain(value)
        raw = to_json(value)
        self.count(raw)
        return raw if len(raw) < self._limit else self._chunk(raw)

    def _plain_list(self, value: list[Any]) -> bytes:
        nodes = None
        if len(value) <= LONG_LIST_ELEMENTS:
            nodes = [self._plain_part(part) for part in value]
            inline = b"[%b]" % b",".join(nodes)
            if self._stays_inline(inline):
                return inline
        raw = to_json(value)
        self.count(raw)
        growth = self._values.trunks.grown_from(raw, typed=False)
        old = growth.mark.count if growth.mark else 0
        if growth.mark and old == len(value):
            return self._list_reference(growth.mark.number)
        items = self._plain_nodes(value[old:]) if nodes is None else b",".join(nodes[old:])
        mark = self._new_mark(growth, raw, len(value), items, typed=False)
        if growth.mark and growth.mark.state is not None:
            mark.state = growth.mark.state.copy()
            Digester(self.known).extend(mark.state, value[old:])
        return self._list_reference(mark.number)

    def _plain_nodes(self, items: list[Any]) -> bytes:
        if _MAY_BE_LONG.isdisjoint(map(type, items)):
            return to_json(items)[1:-1]
        return b",".join(map(self._plain_part, items))

    def listing(self, nodes: list[bytes]) -> bytes:
        """Write a list that is not plain, by the nodes of its elements."""
        raw = super().listing(nodes)
        if len(nodes) <= LONG_LIST_ELEMENTS and self._stays_inline(raw):
            return raw
        growth = self._values.trunks.grown_from(raw, typed=True)
        old = growth.mark.count if growth.mark else 0
        if growth.mark and old == len(nodes):
            return self._list_reference(growth.mark.number)
        mark = self._new_mark(growth, raw, len(nodes), b",".join(nodes[old:]), typed=True)
        return self._list_reference(mark.number)

    def _stays_inline(self, node: bytes) -> bool:
        """A short list is not worth a chunk, unless it begins to hold messages."""
        size = len(node)
        return size < self._limit // 4 or (size < self._limit and b'{"chunk":' not in node)

    def _new_mark(
        self, growth: Growth, raw: bytes, count: int, items: bytes, *, typed: bool
    ) -> Mark:
        prev = b"%d" % growth.mark.number if growth.mark else b"null"
        number = self._store(b'{"prev":%b,"len":%d,"items":[%b]}' % (prev, count, items))
        mark = Mark(count, len(raw) - 1, number)
        self._grown.append(growth.grown(raw, mark, typed=typed))
        return mark

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
    """Reads one value of a run, and registers its lists as list prefixes to grow from."""

    def __init__(self, values: Values) -> None:
        super().__init__(values.known)
        self._values = values
        self._below = values.next_chunk

    def chunk(self, number: Any) -> Any:
        raw = self._raw(number, self._below)
        self._values.remember(number, raw)
        tree = from_json(raw)
        kind = class_of(tree)
        if kind is str:
            return tree
        if kind is dict and not tree.keys().isdisjoint(_REFERENCES):
            raise damaged(f"its chunk {number} is only a reference")
        return self._read_below(number, tree)

    def list_chunk(self, number: Any) -> list[Any]:
        value: list[Any] = self._inside(ChunkReader._list, number)
        return value

    def _list(self, number: Any) -> list[Any]:
        links: list[tuple[int, Link]] = []
        here: Any = number
        below = self._below
        while True:
            link = _read_link(self._raw(here, below))
            links.append((here, link))
            if link.prev is None:
                break
            here, below = link.prev, here
        value: list[Any] = []
        nodes: list[Any] = []
        for at, link in reversed(links):
            value += self._read_below(at, link.items, Reader.elements)
            nodes += link.items
            if len(value) != link.len:
                raise damaged(f"its list {at} has {len(value)} elements instead of {link.len}")
        self._remember(number, value, nodes)
        return value

    def _raw(self, number: Any, below: int) -> bytes:
        if type(number) is not int or not 0 < number < below:
            raise damaged(f"it refers to chunk {number!r}, and there are only those before {below}")
        raw = self._values.chunk(number)
        self.count(raw)
        return raw

    def _read_below(
        self, number: int, tree: Any, read: Callable[[Any, Any], Any] = Reader.read
    ) -> Any:
        before, self._below = self._below, number
        value = read(self, tree)
        self._below = before
        return value

    def _remember(self, number: int, value: list[Any], nodes: list[Any]) -> None:
        if self._values.trunks.have(number):
            return
        typed = not is_plain(value)
        raw = to_json(nodes if typed else value)
        mark = Mark(len(value), len(raw) - 1, number)
        self._values.trunks.put(Trunk(raw, [mark], typed=typed))


class ListDigester(Digester):
    """Continue the digest of a list where it stopped when the list was shorter."""

    def __init__(self, values: Values) -> None:
        super().__init__(values.known)
        self._values = values

    def list_form(self, value: list[Any]) -> bytes:
        mark = self._values.trunks.grown_from(to_json(value), typed=False).mark
        if mark is None:
            return super().list_form(value)
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


# -- list prefixes -----------------------------------------------------------------------------


TRUNKS_MAX_COUNT: Final = 8
TRUNKS_MAX_BYTES: Final = 16 * 1024 * 1024
STATES_KEPT: Final = 4
"""Digest states are kept for the last marks of a list prefix, where lists usually continue."""


class Mark:
    """The end of a stored list within the JSON of its prefix."""

    __slots__ = ("count", "end", "number", "state")

    def __init__(self, count: int, end: int, number: int, state: Any = None) -> None:
        self.count = count
        self.end = end
        self.number = number
        self.state = state


class Trunk:
    """The JSON of a list (of its elements, or of their nodes), and which prefixes are stored."""

    __slots__ = ("marks", "raw", "typed")

    def __init__(self, raw: bytes, marks: list[Mark], *, typed: bool) -> None:
        self.raw = raw
        self.marks = marks
        self.typed = typed

    def longest_in(self, raw: bytes) -> int:
        """Return how many of the marks are prefixes of this list too."""
        view = memoryview(self.raw)

        def differs(mark: Mark) -> bool:
            # After the same bytes a number could continue; after a comma or bracket nothing can.
            return not raw.startswith(view[: mark.end]) or raw[mark.end] not in b",]"

        if not differs(self.marks[-1]):
            return len(self.marks)
        return bisect_left(self.marks, True, key=differs)


class Trunks:
    """The list prefixes of one run, most recently used last. Bounded in number and bytes."""

    def __init__(self) -> None:
        self._trunks: list[Trunk] = []

    def __len__(self) -> int:
        return len(self._trunks)

    def grown_from(self, raw: bytes, *, typed: bool) -> Growth:
        """Return where a list with this JSON continues from."""
        best = Growth(None, 0, None)
        for trunk in self._trunks:
            fitting = trunk.longest_in(raw) if trunk.typed is typed else 0
            if fitting and (best.mark is None or trunk.marks[fitting - 1].count > best.mark.count):
                best = Growth(trunk, fitting, trunk.marks[fitting - 1])
        return best

    def put(self, trunk: Trunk, instead_of: Trunk | None = None) -> None:
        """Put a prefix in front, and drop the least recently used ones."""
        kept = [t for t in self._trunks if t is not instead_of]
        size = len(trunk.raw)
        first = len(kept)
        while first and len(kept) - first < TRUNKS_MAX_COUNT - 1:
            size += len(kept[first - 1].raw)
            if size > TRUNKS_MAX_BYTES:
                break
            first -= 1
        self._trunks = [*kept[first:], trunk]

    def have(self, number: int) -> bool:
        """Return whether this list is a mark near the end of a prefix, so that its growth will be
        seen."""
        return any(mark.number == number for trunk in self._trunks for mark in trunk.marks[-2:])


class Growth(NamedTuple):
    """Return a prefix, how many of its marks a list begins with, and the last of those marks."""

    trunk: Trunk | None
    fitting: int
    mark: Mark | None

    def grown(self, raw: bytes, mark: Mark, *, typed: bool) -> tuple[Trunk, Trunk | None]:
        """Return the prefix of the list that has grown, and the one that it replaces.

        If it grew out of the middle, the other branch may grow again too: then both stay.
        """
        if self.trunk is None:
            return Trunk(raw, [mark], typed=typed), None
        marks = [*self.trunk.marks[: self.fitting], mark]
        if len(marks) > STATES_KEPT:
            marks[-STATES_KEPT - 1].state = None
        at_the_end = self.fitting == len(self.trunk.marks)
        return Trunk(raw, marks, typed=typed), self.trunk if at_the_end else None


# -- the fast path of small flat values --------------------------------------------------------
# A dict of a few scalars, as most arguments and results are, takes a short path. It gives byte for
# byte
# the result of the long path; a test compares them.


ITEMS_MAX: Final = 16
TEXT_MAX_CHARS: Final = 400
NODE_MAX_BYTES: Final = 500
"""Values below this size are not stored separately."""
INT_MAX: Final = 2**53

_to_json = msgspec.json.Encoder().encode
_sorted_json = msgspec.json.Encoder(order="deterministic").encode


def flat_node_of(value: Any) -> bytes | None:
    """Return the node of a small flat dict, or None: take the long path."""
    if not _is_flat(value):
        return None
    try:
        node = b'{"plain":%b}' % _to_json(value)
    except UnicodeEncodeError:
        return None
    return node if len(node) < NODE_MAX_BYTES else None


def scalar_node_of(value: Any) -> bytes | None:
    """Return the node of a small scalar, or None: take the long path."""
    kind = class_of(value)
    if value is None or kind is bool or (kind is int and -INT_MAX <= value <= INT_MAX):
        return _to_json(value)
    return None


def flat_digest_of(value: Any) -> bytes | None:
    """Return the digest of a small flat dict, or None: take the long path."""
    if not _is_flat(value):
        return None
    try:
        form = _sorted_json(value)
    except UnicodeEncodeError:
        return None
    if len(form) >= NODE_MAX_BYTES:
        return None
    return hashlib.blake2b(form + b"\n", digest_size=16).digest()


def _is_flat(value: Any) -> bool:
    if class_of(value) is not dict or len(value) > ITEMS_MAX:
        return False
    for key, part in value.items():
        if type(key) is not str:
            return False
        kind = class_of(part)
        if kind is str:
            if len(part) > TEXT_MAX_CHARS:
                return False
        elif kind is int:
            if not -INT_MAX <= part <= INT_MAX:
                return False
        elif kind is float:
            if part - part != 0:  # NaN and the infinities
                return False
        elif part is not None and kind is not bool:
            return False
    return True
