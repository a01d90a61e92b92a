"""Serialization: values as tagged JSON that comes back exactly.

A *node* is JSON text in which every object has one key, and that key is a tag of ours. Users' data
never stands where a tag is expected: their dicts are always wrapped, so a model that answers
`{"object": ["Admin", {}]}` has written a dict and nothing else.

    null  true  "text"  1  1.5       themselves
    [node, ...]                      list
    {"plain": any JSON}              data of exact JSON types, however deep: coded in C
    {"dict": {key: node}}            dict with text keys       {"map": [[node, node], ...]}  other keys
    {"tuple": [node, ...]}           also "set" and "frozenset", ordered by their elements' nodes
    {"object": [name, {field: node}]}        dataclass, msgspec Struct, NamedTuple
    {"model": [name, {field: node}, ...]}    pydantic model (see `class_codecs`)
    {"enum": [name, member]}         {"int": "..."} and the other scalars (see `scalars`)
    {"enum": [name, [member, ...]]}  a combination of flags: its bits by name, then a number without
    {"chunk": n}  {"list": n}        stored apart, once per run (see `chunks`)

Exactness is proven, not assumed. Plain data is walked for its exact types. Everything else is rebuilt
while it is written, by the functions that the reader uses, and what was rebuilt must have the very
parts it was built from; so a value that would come back changed is refused, with the path to it.

The reader imports nothing and calls nothing that data names: names are looked up in the class registry only.
"""

from __future__ import annotations

import enum
import math
from typing import Any

from holdfast._engine.values.class_codecs import class_of
from holdfast._engine.values.class_registry import KNOWN, Known
from holdfast._engine.values.node_reader import Reader
from holdfast._engine.values.node_writer import Writer
from holdfast._engine.values.scalars import LEAVES


def encode(value: object, path: str = "value", known: Known = KNOWN) -> bytes:
    """Return the node of a value, with nothing stored separately."""
    return Writer(known).write(value, path)[0]


def decode(node: bytes, known: Known = KNOWN) -> Any:
    """Return the value of a node."""
    return Reader(known).decode(node)


def same(a: Any, b: Any, known: Known = KNOWN) -> bool:
    """Return whether two values are the same, including exact types. NaN is itself; dicts and sets
    have no order.

    Independent of the writer and the digests, as the measure of both.
    """
    kind = class_of(a)
    if kind is not class_of(b):
        return False
    if kind is float:
        both_nan = math.isnan(a) and math.isnan(b)
        return both_nan or (a == b and math.copysign(1, a) == math.copysign(1, b))
    if kind is list or kind is tuple:
        return len(a) == len(b) and all(same(x, y, known) for x, y in zip(a, b, strict=True))
    if kind is dict:
        return len(a) == len(b) and _same_dicts(a, b, known)
    if kind is set or kind is frozenset:
        return len(a) == len(b) and _same_sets(list(a), list(b), known)
    return _same_whole(a, b, known)


def _same_whole(a: Any, b: Any, known: Known) -> bool:
    kind = class_of(a)
    if isinstance(a, enum.Enum):
        return a is b
    shape = known.shape(kind)
    if shape is not None:
        pairs = zip(shape.apart(a), shape.apart(b), strict=True)
        return all(same(x, y, known) for x, y in pairs)
    if kind in LEAVES and kind is not int:
        pack = LEAVES[kind].pack
        return bool(pack(a) == pack(b))
    return bool(a == b)


def _same_dicts(a: dict[Any, Any], b: dict[Any, Any], known: Known) -> bool:
    if all(type(key) is str for key in (*a, *b)):
        return all(key in b and same(part, b[key], known) for key, part in a.items())
    return _same_sets(list(a.items()), list(b.items()), known)


def _same_sets(a: list[Any], b: list[Any], known: Known) -> bool:
    """By search, because 1 and True, or two NaN, are equal to a set in other ways than here."""
    rest = list(b)
    for part in a:
        index = next((i for i, other in enumerate(rest) if same(part, other, known)), None)
        if index is None:
            return False
        del rest[index]
    return True
