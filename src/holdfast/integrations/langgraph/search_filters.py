"""What a search of a store means: filters, patterns of namespaces, likeness of vectors. Pure."""

from __future__ import annotations

import array
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    SearchOp,
)

from holdfast.errors import UsageError

_ORDERED: Mapping[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}


def check_labels(op: Op) -> None:
    """Refuse labels that no namespace can have. The methods of a store do so too, but an operation
    may be given to `batch` as it is."""
    paths: list[Sequence[str]] = []
    if isinstance(op, GetOp | PutOp):
        paths = [op.namespace]
    elif isinstance(op, SearchOp):
        paths = [op.namespace_prefix]
    elif isinstance(op, ListNamespacesOp):
        paths = [condition.path for condition in op.match_conditions or ()]
    for path in paths:
        for label in path:
            if why := _why_no_label(label):
                raise InvalidNamespaceError(
                    f"the namespace {path!r} has the label {label!r}: {why}"
                )


def _why_no_label(label: object) -> str:
    if not isinstance(label, str):
        return f"a label is a str, not {type(label).__name__}"
    if not label:
        return "a label is not empty"
    if "." in label or "\0" in label:
        return "a label has no period and no NUL"
    return ""


def at(item: Mapping[str, Any], key: str) -> Any:
    """Return what a filter names: a key of the item, or a path into it with dots."""
    if key in item:
        return item[key]
    found: Any = item
    for name in key.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found


def fits(value: Any, wanted: Any) -> bool:
    """Return whether a value is what a filter wants: the same, or in the order that is asked for."""
    if isinstance(wanted, Mapping):
        if any(str(key).startswith("$") for key in wanted):
            return all(_holds(value, sign, than) for sign, than in wanted.items())
        return isinstance(value, Mapping) and all(
            fits(value.get(key), it) for key, it in wanted.items()
        )
    if isinstance(wanted, list | tuple):
        return (
            isinstance(value, list | tuple)
            and len(value) == len(wanted)
            and all(map(fits, value, wanted))
        )
    return bool(value == wanted)


def _holds(value: Any, sign: str, than: Any) -> bool:
    if sign == "$eq":
        return bool(value == than)
    if sign == "$ne":
        return bool(value != than)
    if sign not in _ORDERED:
        known = ", ".join(("$eq", "$ne", *_ORDERED))
        raise UsageError(f"there is no operator {sign!r} in filters of a store; there are {known}")
    if value is None:
        return False
    try:
        return _ORDERED[sign](value, than)
    except TypeError:
        return False  # What cannot be compared is not in that order.


def namespaces(found: Iterable[tuple[str, ...]], op: ListNamespacesOp) -> list[tuple[str, ...]]:
    """Return which namespaces are asked for, in order and each once."""
    fitting = {
        it[: op.max_depth]
        for it in found
        if all(_matches(condition, it) for condition in op.match_conditions or ())
    }
    return sorted(fitting)[op.offset : op.offset + op.limit]


def _matches(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = condition.path
    if len(namespace) < len(path):
        return False
    if condition.match_type == "prefix":
        end = namespace[: len(path)]
    elif condition.match_type == "suffix":
        end = namespace[len(namespace) - len(path) :]
    else:
        raise UsageError(f"namespaces match by prefix or suffix, not by {condition.match_type!r}")
    return all(wanted in ("*", label) for wanted, label in zip(path, end, strict=True))


def packed(vector: Sequence[float]) -> bytes:
    """Return a vector as it is stored."""
    return array.array("f", vector).tobytes()


def likeness(vector: Sequence[float], stored: bytes) -> float:
    """Return the cosine of the angle between a vector and a stored one."""
    other = array.array("f", stored)
    if len(other) != len(vector):
        raise UsageError(
            f"the embedding gives {len(vector)} numbers, and what is stored has {len(other)}; put "
            "the items again, or search with the embedding that they were put with"
        )
    product = sum(map(operator.mul, vector, other))
    length = math.hypot(*vector) * math.hypot(*other)
    return product / length if length else 0.0
