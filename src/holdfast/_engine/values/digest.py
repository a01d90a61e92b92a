"""Digests of values and of rows.

`digest` is a function of the value alone: not of the order in a dict or set, not of the hash seed,
not of how the value is stored. It is taken over a canonical form, in which every part ends itself:

    plain data under 512 bytes   its JSON with sorted keys, and a line feed (which JSON has none of)
    a longer text, and numbers   likewise
    a longer list                its own digest, over the forms of its elements one after another;
                                 so the digest of a list that grew goes on where it stopped
    anything else                a mark, its tag and name, then the forms of its parts, sorted

JSON never begins with a byte below 32, so that marks cannot be taken for data.
"""

from __future__ import annotations

import enum
import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from holdfast._engine.values.class_codecs import class_of
from holdfast._engine.values.class_registry import KNOWN, Known
from holdfast._engine.values.node_parts import DEPTH_MAX_LEVELS, member_of
from holdfast._engine.values.node_writer import (
    INT_MAX,
    INT_MIN,
    Refused,
    Writer,
    is_plain,
    parts_of,
    surely_long,
    why_not,
)
from holdfast._engine.values.scalars import LEAVES, Unfit
from holdfast.errors import NotSerializable

DIGEST_BYTES: Final = 16
INLINE_MAX_BYTES: Final = 512

_sorted_json = msgspec.json.Encoder(order="deterministic")
_pack_into = msgspec.msgpack.Encoder().encode_into


def digest(value: object, known: Known = KNOWN, path: str = "value") -> bytes:
    """Return 16 bytes that are equal exactly if the values are the same, including their types."""
    return Digester(known).digest(value, path)


class Digester:
    def __init__(self, known: Known) -> None:
        self._known = known
        self._depth = 0

    def digest(self, value: object, path: str = "value") -> bytes:
        self._depth = 0
        try:
            return _hash(self.form(value))
        except (Refused, UnicodeEncodeError, RecursionError) as refused:
            # Only the writer tracks paths, and it refuses the same values with their path.
            Writer(self._known).write(value, path)
            raise NotSerializable(path, str(refused)) from None

    def form(self, value: Any) -> bytes:
        """Return the canonical form of a value."""
        kind = class_of(value)
        if kind is str or value is None or kind is bool:
            return _line(value)
        if kind is dict or kind is list:
            if is_plain(value, DEPTH_MAX_LEVELS - self._depth):
                return self.plain_form(value)
        elif (kind is int and INT_MIN <= value <= INT_MAX) or (
            kind is float and value - value == 0
        ):
            return _line(value)
        elif kind in LEAVES:
            return _leaf_form(value)
        return self._deeper(value)

    def plain_form(self, value: Any) -> bytes:
        """Return the form of a value that is known to be plain."""
        kind = class_of(value)
        if kind is not dict and kind is not list:
            return _line(value)
        if not surely_long(value, INLINE_MAX_BYTES):
            line = _line(value)
            if len(line) <= INLINE_MAX_BYTES:
                return line
        if kind is list:
            return self.list_form(value)
        return _marked("dict", "", *self._items(value, self.plain_form))

    def list_form(self, value: list[Any]) -> bytes:
        """Return the form of a long plain list. A subclass overrides this where it caches earlier
        digests."""
        state = list_state()
        self.extend(state, value)
        return list_end(state)

    def extend(self, state: Any, values: list[Any]) -> None:
        """Add more elements of a plain list to its digest."""
        if _NUMBERS.issuperset(map(type, values)):
            state.update(_sorted_json.encode_lines(values))
        else:
            for value in values:
                state.update(self.plain_form(value))

    def _items(self, value: dict[Any, Any], form: Any) -> Iterable[bytes]:
        return sorted(self.form(key) + form(part) for key, part in value.items())

    def _deeper(self, value: Any) -> bytes:
        self._depth += 1
        if self._depth > DEPTH_MAX_LEVELS:
            raise Refused(f"it is nested more than {DEPTH_MAX_LEVELS} levels deep")
        made = self._container_form(value, class_of(value))
        self._depth -= 1
        return made

    def _container_form(self, value: Any, kind: type[Any]) -> bytes:
        if kind is list:
            state = list_state()
            for part in value:
                state.update(self.form(part))
            return list_end(state)
        if kind is dict:
            return _marked("dict", "", *self._items(value, self.form))
        if kind is tuple:
            return _marked("tuple", "", *map(self.form, value))
        if kind is set or kind is frozenset:
            return _marked(kind.__name__, "", *sorted(map(self.form, value)))
        return self._class_form(value, kind)

    def _class_form(self, value: Any, kind: type[Any]) -> bytes:
        name = self._known.name_of(kind)
        if name is None:
            raise Refused(why_not(value))
        if issubclass(kind, enum.Enum):
            return _marked("enum", name, _line(member_of(value)))
        shape = self._known.shape(kind)
        assert shape is not None
        parts = parts_of(shape, value)
        return _marked(shape.tag, name, *(b for p in parts for b in self._fields(p)))

    def _fields(self, parts: dict[str, Any]) -> Iterable[bytes]:
        yield b"%d\n" % len(parts)
        for name in sorted(parts):
            yield _line(name) + self.form(parts[name])


_NUMBERS = frozenset({int, float, bool, type(None)})


def list_state() -> Any:
    return hashlib.blake2b(digest_size=DIGEST_BYTES, person=b"list")


def list_end(state: Any) -> bytes:
    ended: bytes = state.digest()
    return b"\x01" + ended


def _hash(form: bytes) -> bytes:
    return hashlib.blake2b(form, digest_size=DIGEST_BYTES).digest()


def _line(value: Any) -> bytes:
    line = bytearray()
    try:
        _sorted_json.encode_into(value, line)  # See to_json.
        line += b"\n"
        return bytes(line)
    except UnicodeEncodeError:
        raise Refused("its text has a lone surrogate, which is no valid Unicode") from None


def _leaf_form(value: Any) -> bytes:
    leaf = LEAVES[type(value)]
    try:
        return _marked(leaf.tag, "", _line(leaf.pack(value)))
    except Unfit as unfit:
        raise Refused(str(unfit)) from None


def _marked(tag: str, name: str, *forms: bytes) -> bytes:
    """Tag, name and number of parts, then the parts: no two values have the same form."""
    return b"\x02%b\n%b%d\n%b" % (tag.encode(), _line(name), len(forms), b"".join(forms))


def seal(prev: bytes, parts: Sequence[int | str | bytes | None]) -> bytes:
    """Return the digest of a row, chained to the previous one: over types, lengths and contents.

    MessagePack provides that: each part has its type and length, and each value has one form.
    """
    form = bytearray(prev)
    try:
        _pack_into(parts, form, -1)  # Behind the existing columns; see to_json.
        return hashlib.blake2b(form, digest_size=DIGEST_BYTES).digest()
    except (OverflowError, UnicodeEncodeError):
        # Bytes of a damaged file can become such a number or string; no valid row has them.
        return _hash(prev + repr(parts).encode("utf-8", "backslashreplace"))
