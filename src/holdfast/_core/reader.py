"""From a node back to its value: the half of the codec that meets hostile data.

Every look-up goes through a closed table: tags in `_TAGS`, leaves in `leaves`, classes in `Known`.
Whatever does not fit exactly is `Corrupt`; no other error leaves this module.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final

import msgspec

from holdfast._core.known import Known
from holdfast._core.leaves import LEAF_BY_TAG, Unfit, as_dict, as_list
from holdfast._core.shapes import Misfit, class_of
from holdfast.errors import Corrupt

DEPTH_MAX_LEVELS: Final = 64
VALUE_MAX_BYTES: Final = 64 * 1024 * 1024
READ_MAX_BYTES: Final = 3 * VALUE_MAX_BYTES
"""What one value may take up while it is read, references followed. Tags and references make a node
larger than the JSON of its value; a few references to references would make it endless."""

from_json: Callable[[bytes], Any] = msgspec.json.Decoder().decode


def damaged(why: str) -> Corrupt:
    return Corrupt("a stored value", why=why)


class Reader:
    """Reads values; without a source of chunks."""

    def __init__(self, known: Known) -> None:
        self.known = known
        self._depth = 0
        self._bytes = 0

    def decode(self, node: bytes) -> Any:
        self._depth = self._bytes = 0
        try:
            self.count(node)
            return self.read(from_json(node))
        except Corrupt:
            raise
        except (Misfit, Unfit) as error:
            raise damaged(str(error)) from None
        except RecursionError:
            raise damaged("it is nested too deeply") from None
        except Exception as error:
            raise damaged(f"{type(error).__name__}: {error}") from None

    def read(self, tree: Any) -> Any:
        """The value of a parsed node."""
        kind = class_of(tree)
        if kind is dict:
            if len(tree) != 1:
                raise damaged("an object in it has not exactly one tag")
            [(tag, body)] = tree.items()
            if tag == "plain":
                return body
            if tag == "chunk":
                return self.chunk(body)
            reads = _TAGS.get(tag)
            if reads is None:
                return self._leaf(tag, body)
            return self._inside(reads, body)
        if kind is list:
            return self._inside(Reader.elements, tree)
        return tree

    def count(self, raw: bytes) -> None:
        self._bytes += len(raw)
        if self._bytes > READ_MAX_BYTES:
            raise damaged(f"it expands to more than {READ_MAX_BYTES // 2**20} MiB")

    def chunk(self, number: Any) -> Any:
        raise damaged(f"it refers to chunk {number!r}, and there are none here")

    def list_chunk(self, number: Any) -> Any:
        raise damaged(f"it refers to list {number!r}, and there are none here")

    def _inside(self, reads: Callable[[Any, Any], Any], body: Any) -> Any:
        self._depth += 1
        if self._depth > DEPTH_MAX_LEVELS:
            raise damaged(f"it is nested more than {DEPTH_MAX_LEVELS} levels deep")
        value = reads(self, body)
        self._depth -= 1
        return value

    def _leaf(self, tag: str, body: Any) -> Any:
        if tag == "list":
            return self.list_chunk(body)
        leaf = LEAF_BY_TAG.get(tag)
        if leaf is None:
            raise damaged(
                f"it has the unknown tag {tag[:40]!r}; a newer Holdfast may have written it"
            )
        return leaf.unpack(body)

    def elements(self, body: Any) -> list[Any]:
        parts = as_list(body)
        if parts is None:
            raise damaged("a list was expected in it")
        return [self.read(part) if class_of(part) in _NESTED else part for part in parts]

    def read_named(self, body: Any) -> dict[str, Any]:
        fields = as_dict(body)
        if fields is None:
            raise damaged("named fields were expected in it")
        return {n: self.read(p) if class_of(p) in _NESTED else p for n, p in fields.items()}

    def read_tuple(self, body: Any) -> tuple[Any, ...]:
        return tuple(self.elements(body))

    def read_set(self, body: Any) -> set[Any]:
        return set(self.elements(body))

    def read_frozenset(self, body: Any) -> frozenset[Any]:
        return frozenset(self.elements(body))

    def read_map(self, body: Any) -> dict[Any, Any]:
        pairs = as_list(body)
        if pairs is None:
            raise damaged("a list of pairs was expected in it")
        made: dict[Any, Any] = {}
        for pair in pairs:
            key, value = self.elements(pair)
            made[key] = value
        return made

    def _named_class(self, body: Any) -> tuple[type[Any], list[Any]]:
        name, *rest = as_list(body) or [None]
        if not isinstance(name, str):
            raise damaged("the name of a class was expected in it")
        cls = self.known.by_name(name)
        if cls is None:
            short = name[:80]
            raise damaged(
                f"it has an object of the class {short!r}, which this process does not know; import "
                f"the module that defines it, or add: holdfast.register({short})"
            )
        return cls, rest

    def read_object(self, body: Any) -> Any:
        cls, parts = self._named_class(body)
        return self._build(cls, parts, "object", 1)

    def read_model(self, body: Any) -> Any:
        cls, parts = self._named_class(body)
        return self._build(cls, parts, "model", 4)

    def _build(self, cls: type, parts: list[Any], tag: str, most: int) -> Any:
        shape = self.known.shape(cls)
        if shape is None or shape.tag != tag or not 1 <= len(parts) <= most:
            raise damaged(
                f"{cls.__qualname__} has become another kind of class since it was stored"
            )
        return shape.build([self.read_named(part) for part in parts])

    def read_enum(self, body: Any) -> Any:
        cls, rest = self._named_class(body)
        if not issubclass(cls, enum.Enum) or len(rest) != 1:
            raise damaged(f"{cls.__qualname__} is no enum, or not any more")
        return read_enum(cls, rest[0])


def read_enum(cls: type[enum.Enum], of: Any) -> enum.Enum:
    """A member by name, a combination of flags by value."""
    if type(of) is str and of in cls.__members__:
        return cls.__members__[of]
    if type(of) is int and issubclass(cls, enum.Flag):
        return cls(of)
    raise Misfit(f"{cls.__qualname__} has no member {of!r}")


_NESTED = frozenset({dict, list})

_TAGS: dict[str, Callable[[Any, Any], Any]] = {
    "dict": Reader.read_named,
    "map": Reader.read_map,
    "tuple": Reader.read_tuple,
    "set": Reader.read_set,
    "frozenset": Reader.read_frozenset,
    "object": Reader.read_object,
    "model": Reader.read_model,
    "enum": Reader.read_enum,
}
