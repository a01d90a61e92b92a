"""Shared by the writer and the reader of nodes: limits, the JSON of a node, members of enums."""

from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Final, cast

import msgspec

from holdfast._engine.values.class_codecs import Misfit

DEPTH_MAX_LEVELS: Final = 64
VALUE_MAX_BYTES: Final = 64 * 1024 * 1024

QUOTE_BYTES: Final = 64
"""Half of a string's size beside its characters, with its place in a dict or list."""
BRACE_BYTES: Final = 240
BRACKET_BYTES: Final = 104
COMMA_BYTES: Final = 48
"""The memory of an object, an array and an element of it. In small nodes that is less than the allocator
rounds up, and counting takes time."""
LARGE_NODE_BYTES: Final = 64 * 1024

_parse: Callable[[bytes], Any] = msgspec.json.Decoder().decode


def from_json(raw: bytes) -> Any:
    """Return the tree of a node.

    msgspec (0.22 at least) copies a text into requested memory without checking that it got any:
    under a memory limit the process dies. The memory for the tree is therefore requested here
    first, and freed: if it is not available, Python raises MemoryError.
    """
    size = len(raw) + QUOTE_BYTES * raw.count(b'"')
    if len(raw) >= LARGE_NODE_BYTES:
        size += BRACE_BYTES * raw.count(b"{") + BRACKET_BYTES * raw.count(b"[")
        size += COMMA_BYTES * raw.count(b",")
    bytes(size)
    return _parse(raw)


def member_of(value: enum.Enum) -> str | list[str | int]:
    """The stored form of a member: its name; a combination of flags as the names of its bits, in
    order, and then the number of those that have no name. Numbers are given to names by the code, and
    others when a member is inserted."""
    name, members = value._name_, type(value).__members__
    if members.get(str(name)) is value or not isinstance(value, enum.Flag):
        return str(name)
    names: list[str] = []
    left: int = value._value_
    for one in sorted(members, key=lambda it: (members[it]._value_.bit_count(), it)):
        bits = members[one]._value_
        if members[one]._name_ == one and bits and left & bits == bits:
            names.append(one)
            left &= ~bits
    return [*sorted(names), *([left] if left else [])]


def read_enum(cls: type[Any], of: Any) -> Any:
    """Return a member by name, a combination of flags by the names of its bits."""
    if type(of) is str and of in cls.__members__:
        return cls.__members__[of]
    if type(of) is str or not issubclass(cls, enum.Flag):
        raise Misfit(f"{cls.__qualname__} has no member {of!r}")
    bits = 0
    for part in parts_of(of):
        bits |= part if type(part) is int else read_enum(cls, part)._value_
    made = cls(bits)
    if not isinstance(made, cls) or made._value_ != bits:
        raise Misfit(f"{cls.__qualname__} has no combination {of!r}")
    return made


def parts_of(member: Any) -> list[str | int]:
    """Return the stored members of a combination of flags, or the single member."""
    return cast("list[str | int]", member) if type(member) is list else [member]
