"""The classes that a reader may rebuild, by short name.

Stored data names a class only by its short name, and only a class that the code has registered (by
an annotation of a step, flow or state, or by `holdfast.versioning.register_type`) is rebuilt.
Nothing is ever imported or looked up because data names it.
"""

from __future__ import annotations

import enum
import sys
import typing
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from holdfast._engine.values.class_codecs import Shape, has_parts, is_model, shape_of
from holdfast.errors import UsageError

C = TypeVar("C", bound=type)
Upgrade = Callable[[dict[str, Any]], Any]
"""Makes an object of today's class, or its fields, from the stored fields."""


class Known:
    """A registry of classes. Registering is rare and reading is frequent: both are plain dicts."""

    def __init__(self) -> None:
        self._by_name: dict[str, type] = {}
        self._names: dict[type, str] = {}
        self._shapes: dict[type, Shape] = {}
        self._upgrades: dict[type, Upgrade] = {}

    def register(self, cls: C, name: str | None = None, upgrade: Upgrade | None = None) -> C:
        """Register a class under its short name; usable as a decorator."""
        if not isinstance(cls, type) or not has_parts(cls):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise UsageError(
                f"{cls!r} cannot be registered: only dataclasses, NamedTuples, Enums, "
                "msgspec Structs and pydantic models have parts that can be stored"
            )
        short = name or short_name(cls)
        self._check_free(short, cls)
        if upgrade is not None and not callable(upgrade):
            raise UsageError(f"register_type({cls.__qualname__}, upgrade={upgrade!r}): a function")
        self._put(short, cls)
        if upgrade is not None:
            self._upgrades[cls] = upgrade
        return cls

    def learn(self, annotation: object) -> None:
        """Register every class that values of this annotation can have, also inside others."""
        waiting = [annotation]
        # By identity, because some have no hash; and kept, so that no identity is reused.
        seen: dict[int, object] = {}
        while waiting:
            part = waiting.pop()
            if id(part) in seen:
                continue
            seen[id(part)] = part
            waiting += typing.get_args(part)
            waiting += _aliased(part)
            if isinstance(part, enum.Enum):  # Literal[Color.RED]
                waiting.append(type(part))
            origin = typing.get_origin(part)
            if isinstance(origin, type):
                waiting.append(origin)
            if isinstance(part, type) and _is_value_class(part):
                if part not in self._names:
                    self.register(part)
                waiting += _field_annotations(part)

    def name_of(self, cls: type) -> str | None:
        return self._names.get(cls)

    def by_name(self, name: str) -> type | None:
        return self._by_name.get(name)

    def upgrade(self, cls: type) -> Upgrade | None:
        """The function that makes objects of this class from stored fields that it cannot take."""
        return self._upgrades.get(cls)

    def shape(self, cls: type) -> Shape | None:
        """Return how to take apart and rebuild objects of this class; None for enums and unknown
        classes."""
        found = self._shapes.get(cls)
        if found is None and cls in self._names:
            found = shape_of(cls, self._names[cls])
            if found is not None:
                self._shapes[cls] = found
        return found

    def _check_free(self, short: str, cls: type) -> None:
        other = self._by_name.get(short)
        if other is not None and other is not cls and _home(other) != _home(cls):
            raise UsageError(
                f"two classes have the short name {short!r}: {'.'.join(_home(other))} and "
                f"{'.'.join(_home(cls))}; give one of them another: "
                f'holdfast.versioning.register_type({cls.__name__}, name="...")'
            )

    def _put(self, short: str, cls: type) -> None:
        """The same class again (reload, notebook cell) replaces: values are written by the new one.

        Live objects of the replaced class are refused from now on, because they would be restored
        as objects of another class.
        """
        replaced = self._by_name.get(short)
        if replaced is not None and replaced is not cls:
            self._names.pop(replaced, None)
            self._shapes.pop(replaced, None)
            self._upgrades.pop(replaced, None)
        self._by_name[short] = cls
        self._names[cls] = short
        self._shapes.pop(cls, None)


def short_name(cls: type) -> str:
    """The qualified name, without the enclosing function."""
    return cls.__qualname__.rpartition("<locals>.")[2]


def _home(cls: type) -> tuple[str, str]:
    return cls.__module__, cls.__qualname__


def _is_value_class(cls: type) -> bool:
    """A base such as `enum.Enum` or `BaseModel` itself appears in annotations, but has no
    values."""
    return has_parts(cls) and cls.__module__ not in {
        "enum",
        "msgspec",
        "msgspec._core",
        "pydantic.main",
    }


def _aliased(part: object) -> Iterator[object]:
    """The type behind a `type X = ...`, a NewType and a TypeVar's bound."""
    for attribute in ("__value__", "__supertype__", "__bound__"):
        found = getattr(part, attribute, None)
        if found is not None and not isinstance(part, type):
            yield found
    constraints = getattr(part, "__constraints__", ())
    if isinstance(constraints, tuple):
        yield from typing.cast("tuple[object, ...]", constraints)


def _field_annotations(cls: type[Any]) -> list[object]:
    """The annotations of a class's fields; those that cannot be resolved are skipped."""
    if enum.Enum in cls.__mro__:
        return []
    if is_model(cls):  # Pydantic has resolved them, also those of a parametrised generic model.
        fields: dict[str, Any] = getattr(cls, "model_fields", {})
        return [field.annotation for field in fields.values()]
    try:
        return list(typing.get_type_hints(cls, include_extras=True).values())
    except Exception:
        return list(_resolved_one_by_one(cls))


def _resolved_one_by_one(cls: type) -> Iterator[object]:
    """One name that exists only for type checkers must not hide all the others."""
    for base in cls.__mro__:
        spaces: dict[str, Any] = vars(sys.modules.get(base.__module__, typing))
        for annotation in vars(base).get("__annotations__", {}).values():
            if not isinstance(annotation, str):
                yield annotation
                continue
            try:
                holder = type("holder", (), {"__annotations__": {"it": annotation}})
                hints = typing.get_type_hints(holder, spaces, dict(vars(base)), include_extras=True)
            except Exception:  # noqa: S112 - documented: unresolved hints are skipped
                continue
            yield hints["it"]


KNOWN = Known()
"""The registered classes of this process."""
