"""Validate an answer against its question's choices and JSON schema, without the flow's code. The
process that has the flow validates it again."""

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
_WORDS: dict[str, tuple[str, str]] = {
    "string": ("a string", "TEXT"),
    "integer": ("a whole number", "NUMBER"),
    "number": ("a number", "NUMBER"),
    "boolean": ("true or false", "true|false"),
    "array": ("a list, as JSON", "JSON"),
    "object": ("an object, as JSON", "JSON"),
    "null": ("nothing (null)", "null"),
    "date": ("a date, such as 2026-12-01", "DATE"),
    "time": ("a time of day, such as 09:30:00", "TIME"),
    "date-time": ("a moment, such as 2026-12-01T09:30:00Z", "MOMENT"),
    "duration": ("a length of time, such as PT90M", "DURATION"),
    "uuid": ("a UUID", "UUID"),
    "decimal": ("a decimal number", "NUMBER"),
    "byte": ("bytes, in Base64", "BASE64"),
}
"""How people say a type of JSON schema, or its format, and what stands for it in a command."""


def type_in_words(schema: dict[str, Any] | None) -> str | None:
    """Describe the type of an answer in words; None if nothing is known."""
    if schema is None:
        return None
    inner = _resolved(schema, schema)
    if "anyOf" in inner:
        parts = [
            type_in_words({**each, "$defs": schema.get("$defs", {})}) for each in inner["anyOf"]
        ]
        return None if None in parts else " or ".join(part for part in parts if part)
    values: list[Any] | None = [inner["const"]] if "const" in inner else inner.get("enum")
    if values is not None:
        return "one of " + ", ".join(f"{value!r:.60}" for value in values)
    words = _words(inner)
    if words is None:
        return None
    fields: dict[str, Any] = inner.get("properties", {})
    return f"{words[0]} with the fields {', '.join(fields)}" if fields else words[0]


def placeholder(schema: dict[str, Any] | None) -> str:
    """Return what stands for an answer in a command line."""
    inner = None if schema is None else _resolved(schema, schema)
    if inner is not None and any(it.get("type") == "boolean" for it in inner.get("anyOf", ())):
        return "true|false, or JSON"
    words = None if inner is None else _words(inner)
    return words[1] if words is not None else "JSON" if schema else "VALUE"


def wants_text(schema: dict[str, Any] | None) -> bool:
    """Whether the answer is a string in JSON: a string, a date, a member of an enum by name."""
    if schema is None:
        return False
    inner = _resolved(schema, schema)
    values: list[Any] = inner.get("enum", ())
    return inner.get("type") == "string" or any(isinstance(value, str) for value in values)


def _words(schema: dict[str, Any]) -> tuple[str, str] | None:
    return _WORDS.get(str(schema.get("format"))) or _WORDS.get(str(schema.get("type")))


def misfit(value: Any, choices: list[Any] | None, schema: dict[str, Any] | None) -> str | None:
    """Return why plain data does not fit, or None."""
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
    return f"{path} is {_value_text(value)}, not {' or '.join(names)}"


def _value_text(value: Any) -> str:
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
