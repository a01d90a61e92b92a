"""The semantics of a store's searches: filters, patterns of namespaces, similarity of vectors.
Pure."""

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
    """Refuse labels that are invalid in a namespace. The methods of a store do so too, but an
    operation can be passed directly to `batch`."""
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
        return f"a label must be a str, not {type(label).__name__}"
    if not label:
        return "a label must not be empty"
    if "." in label or "\0" in label:
        return "a label must not contain a period or NUL"
    return ""


def at(item: Mapping[str, Any], key: str) -> Any:
    """Return the value that a filter names: a key of the item, or a dotted path into it."""
    if key in item:
        return item[key]
    found: Any = item
    for name in key.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return None
        found = found[name]
    return found


def fits(value: Any, wanted: Any) -> bool:
    """Return whether a value matches a filter: equal, or in the requested order."""
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
        raise UsageError(
            f"unknown operator {sign!r} in a filter of a store; known operators: {known}"
        )
    if value is None:
        return False
    try:
        return _ORDERED[sign](value, than)
    except TypeError:
        return False  # Incomparable values do not match.


def namespaces(found: Iterable[tuple[str, ...]], op: ListNamespacesOp) -> list[tuple[str, ...]]:
    """Return the requested namespaces, in order and without duplicates."""
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
    """Return the stored form of a vector."""
    return array.array("f", vector).tobytes()


def likeness(vector: Sequence[float], stored: bytes) -> float:
    """Return the cosine of the angle between a vector and a stored one."""
    other = array.array("f", stored)
    if len(other) != len(vector):
        raise UsageError(
            f"the embedding returns {len(vector)} numbers, and the stored vector has {len(other)}; put "
            "the items again, or search with the embedding with which they were put"
        )
    product = sum(map(operator.mul, vector, other))
    length = math.hypot(*vector) * math.hypot(*other)
    return product / length if length else 0.0
