"""What changed from one value to another: paths, and what stood and stands there. Pure.

For any two values that JSON can hold. Elements of lists are told by their place: what is the same at
the beginning and at the end of two lists is left out, what stands between is compared in pairs, and
the rest was added or removed. So a path in a list means the same place in both of them, but for
`added` (a place in the new list) and `removed` (a place in the old one).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from typing import Any, Literal, cast

import msgspec

LIMIT = 1_000
"""How many differences are listed at most."""
DEPTH_MAX = 60
"""Deeper than this, a value is compared as a whole."""
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_encode = msgspec.json.Encoder(order="deterministic").encode


class Difference(msgspec.Struct, frozen=True):
    """One place where two values differ; the path of the whole value is empty."""

    path: str
    kind: Literal["added", "removed", "changed"]
    before: Any = None
    after: Any = None


def differences(before: Any, after: Any, limit: int = LIMIT) -> list[Difference]:
    """Return where two values differ, in the order of their parts; not more than `limit`. Who must
    know whether there are more asks for one more than they show."""
    return list(itertools.islice(_between(before, after, "", 0), limit))


def _between(before: Any, after: Any, path: str, depth: int) -> Iterator[Difference]:
    if before is after:
        return
    kind, other = _kind(before), _kind(after)
    if depth < DEPTH_MAX and kind == other:
        if kind == "dict":
            yield from _of_objects(before, after, path, depth + 1)
            return
        if kind == "list":
            yield from _of_lists(before, after, path, depth + 1)
            return
    if not _same(before, after):
        yield Difference(path, "changed", before, after)


def _kind(value: object) -> str:
    return type(value).__name__


def _of_objects(
    before: dict[str, Any], after: dict[str, Any], path: str, depth: int
) -> Iterator[Difference]:
    for name, was in before.items():
        inside = _named(path, name)
        if name in after:
            yield from _between(was, after[name], inside, depth)
        else:
            yield Difference(inside, "removed", before=was)
    for name, now in after.items():
        if name not in before:
            yield Difference(_named(path, name), "added", after=now)


def _of_lists(before: list[Any], after: list[Any], path: str, depth: int) -> Iterator[Difference]:
    shorter = min(len(before), len(after))
    begin = 0
    while begin < shorter and _same(before[begin], after[begin]):
        begin += 1
    end = 0
    while end < shorter - begin and _same(before[-1 - end], after[-1 - end]):
        end += 1
    paired = shorter - end
    for place in range(begin, paired):
        yield from _between(before[place], after[place], f"{path}[{place}]", depth)
    for place in range(paired, len(before) - end):
        yield Difference(f"{path}[{place}]", "removed", before=before[place])
    for place in range(paired, len(after) - end):
        yield Difference(f"{path}[{place}]", "added", after=after[place])


def _same(one: Any, other: Any) -> bool:
    """Tell whether two values are the same JSON: 1, 1.0 and true are three."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, (dict, list)):
        size = cast("dict[str, Any] | list[Any]", one)
        return len(size) == len(other) and _encode(one) == _encode(other)
    return bool(one == other)


def _named(path: str, name: Any) -> str:
    """Return the path of a field; a name that would be misread stands in brackets, as JSON."""
    if isinstance(name, str) and _NAME.fullmatch(name):
        return f"{path}.{name}" if path else name
    return f"{path}[{msgspec.json.encode(str(name)).decode()}]"
