"""The parameters of a tool: their JSON schema, and how a model's arguments become values."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Collection, Mapping
from typing import Any

import msgspec

import holdfast
from holdfast.errors import UsageError
from holdfast.integrations._calls import LEVELS_MAX, is_shallow, is_storable

_RESOURCE: Any = type(holdfast.resource(object))
_SECTION = re.compile(r"^\s*(?:Args|Arguments|Parameters|Params):\s*$")
_ANY_SECTION = re.compile(r"^\s*[A-Z]\w+:\s*$")
_IN_SECTION = re.compile(r"^\s+\*{0,2}(?P<name>\w+)(?:\s*\([^)]*\))?:\s*(?P<text>.*)$")
_FIELD = re.compile(r"^\s*:(?:param|parameter|arg)\s+(?:\w+\s+)?(?P<name>\w+):\s*(?P<text>.*)$")
_TOO_DEEP = f"they are nested more than {LEVELS_MAX} levels deep"


class BadArguments(ValueError):
    """A model's call does not fit the tool."""


class Parameters:
    """The parameters of one function that a model may supply."""

    def __init__(self, fn: Callable[..., Any], name: str, unrecorded: Collection[str] = ()) -> None:
        described = described_parameters(fn.__doc__ or "")
        hints = _hints(fn, name)
        fields: list[Any] = []
        defaults: dict[str, Any] = {}
        for parameter in inspect.signature(fn).parameters.values():
            if parameter.name in unrecorded or isinstance(parameter.default, _RESOURCE):
                continue  # The program supplies it, not the model.
            _check_kind(parameter, name)
            kind = hints.get(parameter.name, Any)
            if parameter.default is parameter.empty:
                fields.append((parameter.name, kind))
            else:
                defaults[parameter.name] = parameter.default
                fields.append((parameter.name, kind | msgspec.UnsetType, msgspec.UNSET))
        self._type = msgspec.defstruct(
            f"{name}_arguments", fields, kw_only=True, forbid_unknown_fields=True
        )
        self.schema = _schema(self._type, name, described, defaults)

    def read(self, given: str | Mapping[str, Any]) -> dict[str, Any]:
        """Turn the model's arguments into keyword arguments, or raise an error that names the
        problem."""
        if not is_shallow(given):
            raise BadArguments(_TOO_DEEP)
        if not is_storable(given if isinstance(given, str) else dict(given)):
            raise BadArguments("a string in them has a lone surrogate")
        try:
            if isinstance(given, str):
                read = msgspec.json.decode(given or "{}", type=self._type)
            else:
                read = msgspec.convert(dict(given), type=self._type)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise BadArguments(str(error)) from None
        values = {
            name: value
            for name in self._type.__struct_fields__
            if (value := getattr(read, name)) is not msgspec.UNSET
        }
        if not is_shallow(values):  # They were JSON text.
            raise BadArguments(_TOO_DEEP)
        return values


def description_of(doc: str) -> str:
    """Return the part of a docstring about the function itself, without its parameters and later
    sections."""
    kept: list[str] = []
    for line in inspect.cleandoc(doc).splitlines():
        if _ANY_SECTION.match(line) or line.lstrip().startswith((":param", ":return", ":raise")):
            break
        kept.append(line)
    return "\n".join(kept).strip()


def described_parameters(doc: str) -> dict[str, str]:
    """Return a docstring's description of each parameter: under `Args:`, or as `:param name:`."""
    found: dict[str, str] = {}
    inside, last = False, ""
    for line in inspect.cleandoc(doc).splitlines():
        if _ANY_SECTION.match(line):
            inside, last = bool(_SECTION.match(line)), ""
            continue
        told = _FIELD.match(line) or (_IN_SECTION.match(line) if inside else None)
        if told:
            last = told["name"]
            found[last] = told["text"].strip()
        elif last and line.strip():
            found[last] = f"{found[last]} {line.strip()}".strip()
        else:
            last = ""
    return found


def _hints(fn: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(fn, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"the tool {name}: its annotations cannot be read ({error}); use types that its module "
            "knows when it is loaded"
        ) from error


def _check_kind(parameter: inspect.Parameter, name: str) -> None:
    if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
        return
    raise UsageError(
        f"the tool {name}: a model gives arguments by name, so {str(parameter)!r} cannot be one of "
        "its parameters"
    )


def _schema(
    kind: Any, name: str, described: Mapping[str, str], defaults: Mapping[str, Any]
) -> dict[str, Any]:
    try:
        _, parts = msgspec.json.schema_components([kind], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise UsageError(
            f"the tool {name}: a model cannot give one of its parameters ({error}); use str, int, "
            "float, bool, lists, dicts, Literal, enums, dataclasses, TypedDicts or Structs"
        ) from error
    whole: dict[str, Any] = parts.pop(f"{name}_arguments")
    whole.pop("title", None)
    for key, shown in whole["properties"].items():
        if described.get(key):
            shown["description"] = described[key]
        if key in defaults and _is_plain(defaults[key]):
            shown["default"] = defaults[key]
    if parts:
        whole["$defs"] = parts
    return whole


def _is_plain(value: Any) -> bool:
    return value is None or type(value) in (str, int, float, bool)
