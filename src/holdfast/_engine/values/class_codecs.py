"""Take an object of a user's class apart into named parts, and rebuild it.

A shape never calls `__init__`, `__post_init__`, validators or setters of the class: a stored value
has passed them once, and running them again could change it. Parts are set on a bare object. An
object is refused if its parts would not restore it, above all if it has attributes that are no
fields.
"""

from __future__ import annotations

import enum
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from msgspec.structs import force_setattr

if TYPE_CHECKING:
    from dataclasses import Field

class_of: Callable[[object], type[Any]] = type
"""`type(value)`, typed so that type checkers assume nothing about the class."""


class Misfit(Exception):
    """An object and its class's parts do not fit; the text says why. Never reaches users."""


Parts = tuple[dict[str, object], ...]
"""One dict of fields for most classes; four for a pydantic model."""


class Shape(Protocol):
    """The codec of one class.

    `faithful`: setting the fields of a bare object and reading them back cannot run code of the
    class, so values need no trial.
    """

    tag: str
    name: str
    faithful: bool

    def apart(self, value: Any) -> Parts: ...
    def build(self, parts: Sequence[Mapping[str, object]]) -> object: ...
    def field_names(self) -> Sequence[str]: ...


def shape_of(cls: type[Any], name: str) -> Shape | None:
    """Return the shape of a class, or None for a class without named parts."""
    if issubclass(cls, enum.Enum):
        return None
    if is_model(cls):
        return ModelShape(cls, name)
    if issubclass(cls, msgspec.Struct):
        return StructShape(cls, name)
    if is_dataclass(cls):
        return DataclassShape(cls, name)
    if is_namedtuple(cls):
        return NamedTupleShape(cls, name)
    return None


def is_model(cls: type) -> bool:
    """Return whether it is a pydantic model, without importing pydantic: a model can only exist
    after that import."""
    pydantic = sys.modules.get("pydantic")
    base = getattr(pydantic, "BaseModel", None)
    return isinstance(base, type) and issubclass(cls, base)


def is_dataclass(cls: type) -> bool:
    """Return whether it is a dataclass, without importing dataclasses."""
    return hasattr(cls, "__dataclass_fields__")


def is_namedtuple(cls: type[Any]) -> bool:
    return tuple in cls.__mro__ and isinstance(getattr(cls, "_fields", None), tuple)


def has_parts(cls: type[Any]) -> bool:
    """Return whether objects of this class can be values."""
    return (
        issubclass(cls, (enum.Enum, msgspec.Struct))
        or is_dataclass(cls)
        or is_namedtuple(cls)
        or is_model(cls)
    )


def _refuse_strangers(cls: type, strangers: set[str]) -> None:
    """A cached property may be dropped, because it can be computed again; other attributes may
    not."""
    lost = [n for n in sorted(strangers) if not _is_cached_property(cls, n)]
    if lost:
        raise Misfit(f"it has an attribute {lost[0]!r} that is no field of {cls.__qualname__}")


def _is_cached_property(cls: type, name: str) -> bool:
    found = (vars(base)[name] for base in cls.__mro__ if name in vars(base))
    return isinstance(next(found, None), functools.cached_property)


class FieldShape:
    """The common part of all shapes whose parts are attributes with defaults."""

    tag: str = "object"

    def __init__(
        self, cls: type, name: str, defaults: dict[str, Callable[[], object] | None]
    ) -> None:
        self.cls: Any = cls
        self.name = name
        self.fields = tuple(defaults)
        self.faithful = _is_faithful(cls, self.fields)
        self._known = frozenset(defaults)
        self._defaults = defaults

    def apart(self, value: Any) -> Parts:
        own = getattr(value, "__dict__", None)
        if own and not self._known.issuperset(own):
            _refuse_strangers(self.cls, set(own) - self._known)
        try:
            return ({name: getattr(value, name) for name in self.fields},)
        except AttributeError as error:
            raise Misfit(f"a field of it was never set ({error})") from None

    def complete(self, parts: Mapping[str, object]) -> Mapping[str, object]:
        """Return the parts of a record, with today's defaults for newer fields."""
        if len(parts) == len(self.fields) and self._known.issuperset(parts):
            return parts
        gone = [n for n in parts if n not in self._known]
        if gone:
            raise Misfit(f"the record has a field {gone[0]!r} that {self.name} no longer has")
        return {n: parts[n] if n in parts else self._default(n) for n in self.fields}

    def _default(self, name: str) -> object:
        make = self._defaults[name]
        if make is None:
            raise Misfit(f"the record lacks the field {name!r}, which has no default")
        return make()

    def field_names(self) -> Sequence[str]:
        return self.fields

    def build(self, parts: Sequence[Mapping[str, object]]) -> object:
        return self._make(self.complete(parts[0]))

    def _make(self, parts: Mapping[str, object]) -> object:
        raise NotImplementedError


def _is_faithful(cls: Any, fields: Sequence[str]) -> bool:
    if cls.__getattribute__ is not object.__getattribute__ or issubclass(cls, BaseException):
        return False
    spaces: list[Mapping[str, object]] = [vars(base) for base in cls.__mro__]
    kinds = {class_of(space[name]) for name in fields for space in spaces if name in space}
    return not any(hasattr(kind, "__set__") for kind in kinds - {MemberDescriptorType})


def _constant(value: object) -> Callable[[], object]:
    return lambda: value


class DataclassShape(FieldShape):
    def __init__(self, cls: Any, name: str) -> None:
        from dataclasses import fields  # Loaded with the first class of this kind.

        super().__init__(cls, name, {f.name: _dataclass_default(f) for f in fields(cls)})

    def _make(self, parts: Mapping[str, object]) -> object:
        made: object = object.__new__(self.cls)
        for name, part in parts.items():
            object.__setattr__(made, name, part)
        return made


def _dataclass_default(field: Field[Any]) -> Callable[[], object] | None:
    from dataclasses import MISSING

    if field.default is not MISSING:
        return _constant(field.default)
    if field.default_factory is not MISSING:
        return field.default_factory
    return None


class StructShape(FieldShape):
    def __init__(self, cls: Any, name: str) -> None:
        fields = msgspec.structs.fields(cls)
        super().__init__(cls, name, {f.name: _struct_default(f) for f in fields})
        # A Struct cannot be made without its constructor, which calls `__post_init__`. A twin
        # without one is
        # made instead and then given the class; their layouts are the same.
        self._bare: Any = _bare_twin(cls) if hasattr(cls, "__post_init__") else cls

    def _make(self, parts: Mapping[str, object]) -> object:
        made = self._bare(**parts)
        if self._bare is not self.cls:
            force_setattr(made, "__class__", self.cls)
        return made


def _struct_default(field: msgspec.structs.FieldInfo) -> Callable[[], object] | None:
    if field.default is not msgspec.NODEFAULT:
        return _constant(field.default)
    if field.default_factory is not msgspec.NODEFAULT:
        make: Callable[[], object] = field.default_factory
        return make
    return None


def _bare_twin(cls: Any) -> Any:
    def no_post_init(_: object) -> None: ...

    return msgspec.defstruct(
        cls.__name__, [], bases=(cls,), namespace={"__post_init__": no_post_init}
    )


class NamedTupleShape(FieldShape):
    def __init__(self, cls: Any, name: str) -> None:
        defaults: dict[str, object] = cls._field_defaults
        makers = {n: _constant(defaults[n]) if n in defaults else None for n in cls._fields}
        super().__init__(cls, name, makers)

    def apart(self, value: Any) -> Parts:
        if len(value) != len(self.fields):
            raise Misfit(f"it has {len(value)} elements for {len(self.fields)} fields")
        _refuse_strangers(self.cls, set(getattr(value, "__dict__", ())))
        return (dict(zip(self.fields, value, strict=True)),)

    def _make(self, parts: Mapping[str, object]) -> object:
        # Not through the class, whose own `__new__` takes the fields one by one and may do more.
        make: Callable[[type, Sequence[object]], object] = _bare_tuple
        return make(self.cls, [parts[n] for n in self.fields])


_bare_tuple: Any = vars(tuple)["__new__"]


class ModelShape:
    """A pydantic model as pydantic itself keeps it: no validation, no `model_post_init`.

    Its parts are four dicts: fields that were set, extras that were set, fields that a default
    factory filled, extras added later. A field that was not set and has its constant default is
    left to the class. Private attributes are not stored; they get their defaults.
    """

    tag: str = "model"

    def __init__(self, cls: Any, name: str) -> None:
        self.cls = cls
        self.name = name
        # Its fields are in its `__dict__`, which is read and set as a whole.
        self.faithful = _is_faithful(cls, ())

    def field_names(self) -> Sequence[str]:
        return list(self.cls.model_fields)

    def apart(self, value: Any) -> Parts:
        fields: dict[str, Any] = self.cls.model_fields
        own: dict[str, object] = value.__dict__
        chosen: set[str] = value.model_fields_set
        extra: dict[str, object] = value.model_extra or {}
        if not fields.keys() >= own.keys():
            _refuse_strangers(self.cls, own.keys() - fields.keys())
        missing = fields.keys() - own.keys()
        if missing:
            raise Misfit(f"its field {min(missing)!r} was never set")
        if not chosen <= fields.keys() | extra.keys():
            raise Misfit("its model_fields_set names fields that it does not have")
        return (
            {n: own[n] for n in fields if n in chosen},
            {n: v for n, v in extra.items() if n in chosen},
            {n: own[n] for n, f in fields.items() if n not in chosen and f.default is not own[n]},
            {n: v for n, v in extra.items() if n not in chosen},
        )

    def build(self, parts: Sequence[Mapping[str, object]]) -> object:
        none: Mapping[str, object] = {}
        chosen, extra, made, late = (*parts, none, none, none)[:4]
        fields: dict[str, Any] = self.cls.model_fields
        gone = [n for n in (*chosen, *made) if n not in fields]
        if gone:
            raise Misfit(f"the record has a field {gone[0]!r} that {self.name} no longer has")
        model = object.__new__(self.cls)
        had = {**made, **chosen}
        content = {n: had[n] if n in had else _model_default(n, f) for n, f in fields.items()}
        object.__setattr__(model, "__dict__", content)
        object.__setattr__(model, "__pydantic_fields_set__", {*chosen, *extra})
        self._dress(model, {**extra, **late})
        return model

    def _dress(self, model: object, extra: dict[str, object]) -> None:
        allows_extra = self.cls.model_config.get("extra") == "allow"
        if extra and not allows_extra:
            raise Misfit(f"the record has extra fields, which {self.name} does not allow")
        if self.cls.__pydantic_root_model__:
            return
        object.__setattr__(model, "__pydantic_extra__", extra if allows_extra else None)
        private: dict[str, Any] = self.cls.__private_attributes__
        undefined = sys.modules["pydantic_core"].PydanticUndefined
        defaults = {n: attribute.get_default() for n, attribute in private.items()}
        kept = {n: default for n, default in defaults.items() if default is not undefined}
        object.__setattr__(model, "__pydantic_private__", kept if private else None)


def _model_default(name: str, field: Any) -> object:
    if field.is_required() or field.default_factory_takes_validated_data:
        raise Misfit(f"the record lacks the field {name!r}, which has no default of its own")
    return field.get_default(call_default_factory=True)
