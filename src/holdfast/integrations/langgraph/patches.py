"""Differences of documents as patches, in plain data. A patch of a list keeps its first items.

{"=": {key: value}, "~": {key: patch}, "-": [key]}    of a dictionary
{"+": [number of kept items, new items]}              of a list
"""

from __future__ import annotations

from typing import Any

Patch = dict[str, Any]


def diff(old: dict[str, Any], new: dict[str, Any]) -> Patch:
    """Return the patch from the old document to the new one; empty if they are equal."""
    put: dict[str, Any] = {}
    deep: dict[str, Patch] = {}
    for key, value in new.items():
        before = old.get(key)
        if type(before) is dict and type(value) is dict:
            part = diff(before, value)
        elif type(before) is list and type(value) is list:
            part = _follow(before, value)
        else:
            if key not in old or not same(before, value):
                put[key] = value
            continue
        if part:
            deep[key] = part
    gone = [key for key in old if key not in new]
    return {sign: part for sign, part in (("=", put), ("~", deep), ("-", gone)) if part}


def _follow(old: list[Any], new: list[Any]) -> Patch:
    kept = 0
    for before, after in zip(old, new, strict=False):
        if before is not after and not same(before, after):
            break
        kept += 1
    return {} if kept == len(old) == len(new) else {"+": [kept, new[kept:]]}


def apply(old: Any, patch: Patch) -> Any:
    """Return the new document. The old one is not changed."""
    if "+" in patch:
        kept, tail = patch["+"]
        return [*old[:kept], *tail]
    made = {key: value for key, value in old.items() if key not in patch.get("-", ())}
    made |= patch.get("=", {})
    for key, part in patch.get("~", {}).items():
        made[key] = apply(old[key], part)
    return made


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal, with their types: 1 is not True."""
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if type(one) is list or type(one) is tuple:
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def weight(value: Any) -> int:
    """Return the approximate size of a value in bytes."""
    if isinstance(value, dict):
        return 10 + sum(len(key) + 4 + weight(it) for key, it in value.items())
    if isinstance(value, list | tuple):
        return 2 + sum(map(weight, value))
    if isinstance(value, str):
        return len(value) + 3
    if isinstance(value, bytes):
        return 15 + len(value) * 4 // 3
    return 6
