"""Whether an answer fits what is asked, as far as that can be told without the flow's code: by the
choices, and by the JSON schema of the type. The flow's own process has the last word."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, cast

_KINDS: dict[str, tuple[type, ...]] = {
    "null": (type(None),),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "string": (str,),
    "array": (list,),
    "object": (dict,),
}
_LIMITS: tuple[tuple[str, Callable[[Any, Any], bool], str], ...] = (
    ("minimum", operator.ge, "at least"),
    ("maximum", operator.le, "at most"),
    ("exclusiveMinimum", operator.gt, "more than"),
    ("exclusiveMaximum", operator.lt, "less than"),
)
DEEPEST = 32


def misfit(value: Any, choices: list[Any] | None, schema: dict[str, Any] | None) -> str | None:
    """Say why plain data does not fit, or None."""
    if choices is not None and not any(_equal(value, choice) for choice in choices):
        return f"{value!r:.80} is none of " + ", ".join(f"{choice!r:.80}" for choice in choices)
    return None if schema is None else _misfit(value, schema, schema, "it", 0)


def _equal(one: Any, other: Any) -> bool:
    return type(one) is type(other) and bool(one == other)


def _misfit(
    value: Any, schema: dict[str, Any], root: dict[str, Any], path: str, depth: int
) -> str | None:
    if depth > DEEPEST:
        return None
    schema = _resolved(schema, root)
    if "anyOf" in schema:
        whys = [_misfit(value, each, root, path, depth + 1) for each in schema["anyOf"]]
        return None if None in whys or not whys else whys[0]
    wanted = [schema["const"]] if "const" in schema else schema.get("enum")
    if wanted is not None and not any(_equal(value, each) for each in wanted):
        return f"{path} is {value!r:.60}, not one of " + ", ".join(f"{it!r:.60}" for it in wanted)
    return (
        _kind(value, schema, path)
        or _bounds(value, schema, path)
        or _parts(value, schema, root, path, depth)
    )


def _resolved(schema: dict[str, Any], root: dict[str, Any]) -> dict[str, Any]:
    name = str(schema.get("$ref", ""))
    if not name.startswith("#/$defs/"):
        return schema
    found: dict[str, Any] = root.get("$defs", {}).get(name.removeprefix("#/$defs/"), {})
    return found


def _kind(value: Any, schema: dict[str, Any], path: str) -> str | None:
    kinds = schema.get("type")
    if kinds is None:
        return None
    names = [kinds] if isinstance(kinds, str) else list(kinds)
    for name in names:
        is_bool = isinstance(value, bool) and name != "boolean"
        if isinstance(value, _KINDS.get(name, (object,))) and not is_bool:
            return None
    return f"{path} is {_told(value)}, not {' or '.join(names)}"


def _told(value: Any) -> str:
    for name, kinds in _KINDS.items():
        if type(value) in kinds:
            return f"{name} ({value!r:.40})"
    return repr(value)[:60]


def _bounds(value: Any, schema: dict[str, Any], path: str) -> str | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        for name, holds, words in _LIMITS:
            if name in schema and not holds(value, schema[name]):
                return f"{path} is {value!r}, and must be {words} {schema[name]!r}"
    if isinstance(value, str | list):
        size = len(cast("list[Any]", value))
        noun = "characters" if isinstance(value, str) else "elements"
        low = schema.get("minLength", schema.get("minItems", 0))
        high = schema.get("maxLength", schema.get("maxItems", size))
        if not low <= size <= high:
            return f"{path} has {size} {noun}, and must have {low} to {high}"
    return None


def _parts(
    value: Any, schema: dict[str, Any], root: dict[str, Any], path: str, depth: int
) -> str | None:
    if isinstance(value, dict):
        fields: dict[str, Any] = schema.get("properties", {})
        for name in schema.get("required", ()):
            if name not in value:
                return f"{path} has no field {name!r}"
        for name, each in fields.items():
            if name in value:
                why = _misfit(value[name], each, root, f"{path}.{name}", depth + 1)
                if why is not None:
                    return why
    items: Any = schema.get("items")
    if isinstance(value, list) and isinstance(items, dict):
        elements: list[Any] = value  # pyright: ignore[reportUnknownVariableType]
        inner: dict[str, Any] = items  # pyright: ignore[reportUnknownVariableType]
        for index, each in enumerate(elements):
            why = _misfit(each, inner, root, f"{path}[{index}]", depth + 1)
            if why is not None:
                return why
    return None
