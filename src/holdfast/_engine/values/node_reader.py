"""From a node back to its value: the half of the codec that reads hostile data.

Every lookup uses a closed table: tags in `_TAGS`, leaves in `leaves`, classes in `Known`. Data that
no valid writer can have made is `Corrupt`. Intact data that today's class cannot take (a field was
removed, a member renamed, the class is not known) is `ClassChanged`, unless the class was
registered with an `upgrade=` function.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, cast

from holdfast._engine.values.class_codecs import Misfit, class_of
from holdfast._engine.values.class_registry import Known
from holdfast._engine.values.node_parts import (
    DEPTH_MAX_LEVELS,
    VALUE_MAX_BYTES,
    from_json,
    parts_of,
    read_enum,
)
from holdfast._engine.values.node_writer import Writer
from holdfast._engine.values.scalars import LEAF_BY_TAG, Unfit, as_dict, as_list
from holdfast.errors import ClassChanged, Corrupt, NotSerializable, RunError, StoreError

READ_MAX_BYTES: Final = 3 * VALUE_MAX_BYTES
"""The memory that one value may take while it is read, references followed. Tags and references make a node
larger than the JSON of its value; a few references to references would make it endless."""


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
        except (StoreError, RunError, ClassChanged, MemoryError):
            raise  # The source of the chunks has failed; that is no damage of the value.
        except Unfit as error:
            raise damaged(str(error)) from None
        except RecursionError:
            raise damaged("it is nested too deeply") from None
        except Exception as error:
            raise damaged(f"{type(error).__name__}: {error}") from None

    def read(self, tree: Any) -> Any:
        """Return the value of a parsed node."""
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

    def _named_class(self, body: Any) -> tuple[str, type[Any] | None, list[Any]]:
        name, *rest = as_list(body) or [None]
        if not isinstance(name, str):
            raise damaged("the name of a class was expected in it")
        return name, self.known.by_name(name), rest

    def read_object(self, body: Any) -> Any:
        return self._build(*self._named_class(body), "object", 1)

    def read_model(self, body: Any) -> Any:
        return self._build(*self._named_class(body), "model", 4)

    def _build(self, name: str, cls: type | None, parts: list[Any], tag: str, most: int) -> Any:
        if not 1 <= len(parts) <= most:
            raise damaged(f"an object in it has {len(parts)} parts")
        read = [self.read_named(part) for part in parts]
        shape = None if cls is None else self.known.shape(cls)
        try:
            if shape is None or shape.tag != tag:
                raise Misfit(_another_kind(cls))
            return shape.build(read)
        except MemoryError:
            raise
        except Exception as misfit:
            fields = {n: part for some in reversed(read) for n, part in some.items()}
            try:
                return self._upgraded(name, cls, fields, list(fields), _why(misfit))
            except ClassChanged as changed:
                return self.stranger(name, tag, read, changed)

    def read_enum(self, body: Any) -> Any:
        name, cls, rest = self._named_class(body)
        if len(rest) != 1 or not _is_member(rest[0]):
            raise damaged("one member of an enum was expected in it")
        try:
            if cls is None or not issubclass(cls, enum.Enum):
                raise Misfit(_another_kind(cls))
            return read_enum(cls, rest[0])
        except (Misfit, ValueError) as misfit:
            fields = {_MEMBER_FIELDS[type(rest[0])]: rest[0]}
            stored = parts_of(rest[0])
            try:
                return self._upgraded(name, cls, fields, [str(it) for it in stored], _why(misfit))
            except ClassChanged as changed:
                return self.stranger(name, "enum", rest, changed)

    def stranger(self, name: str, tag: str, parts: list[Any], changed: ClassChanged) -> Any:
        """A value that today's classes cannot take."""
        raise changed

    def _upgraded(
        self, name: str, cls: type | None, fields: dict[str, Any], stored: list[str], why: str
    ) -> Any:
        """The object that the registered function of a class makes of a value that the class cannot take."""
        upgrade = None if cls is None else self.known.upgrade(cls)
        if cls is not None and upgrade is not None:
            try:
                made = upgrade(dict(fields))
                value = made if isinstance(made, cls) else self._from_fields(cls, made)
                self._check_storable(value)
                return value
            except MemoryError:
                raise
            except Exception as error:
                why = f"{why}; its upgrade failed: {_why(error)}"
        raise ClassChanged(name[:80], stored, None if cls is None else _today(self.known, cls), why)

    def _check_storable(self, value: Any) -> None:
        """Refuse an upgrade's result that no step could take: it would fail the run there."""
        try:
            Writer(self.known).write(value, "it")
        except NotSerializable as refused:
            raise Misfit(f"it returned what cannot be stored: {refused}") from None

    def _from_fields(self, cls: type, made: Any) -> Any:
        if not isinstance(made, Mapping):
            raise Misfit(f"it returned {made!r:.80}, which is no {cls.__qualname__} and no fields")
        fields = cast("Mapping[str, Any]", made)
        shape = self.known.shape(cls)
        if shape is not None:
            return shape.build([fields])
        [member] = fields.values()
        return read_enum(cls, member)


def _another_kind(cls: type | None) -> str:
    if cls is None:
        return "its class is not known"
    return f"{cls.__qualname__} has become another kind of class since it was stored"


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, Misfit) else f"{type(error).__name__}: {error}"


def _today(known: Known, cls: type) -> Sequence[str]:
    """Return the fields, or members, that a class has now."""
    shape = known.shape(cls)
    if shape is not None:
        return shape.field_names()
    return list(cls.__members__) if issubclass(cls, enum.Enum) else []


def _is_member(of: Any) -> bool:
    return all(type(part) in (str, int) for part in parts_of(of))


_MEMBER_FIELDS: dict[type[Any], str] = {str: "name", int: "value", list: "names"}


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
