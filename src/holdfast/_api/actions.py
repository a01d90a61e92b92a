"""Actions: what people decide, each declared once, by a method of `Store`.

The method is the declaration: its name, signature, annotations, the first line of its docstring, and
the role that `@action` gives it. The HTTP route with its request model and its part of the OpenAPI
description, the MCP tool, and the arguments and help texts of the CLI command are made from it.

A front supplies `actor`, `wait_s` and `expected_version` itself (`SUPPLIED`). It asks for all other
parameters by their names. A parameter that is a struct of ours has a form: the
struct of its annotation, whose fields are asked for instead.

Arguments are checked against the annotations, in the same words for every front: by the method itself
for Python, and by `Action.perform` for a front, which names the parameters as its users write them.
"""

from __future__ import annotations

import datetime as dt
import functools
import inspect
import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import (
    Annotated,
    Any,
    Literal,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import UNSET, Meta

from holdfast._engine.values.masks import masked
from holdfast.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])
RoleName = Literal["operator", "admin"]

SUPPLIED = ("actor", "wait_s", "expected_version")
"""Parameters that the front fills in: the actor, the waiting time, and the version of the run."""

CHECKED_BY_ACTIONS = ("actor", "wait_s")
"""Parameters whose limits are no part of an annotation."""


def says(text: str, word: str = "") -> Meta:
    """Return the annotation that says what a parameter is, in a sentence; `word` stands for a value of
    it in the usage of a command."""
    return Meta(description=text, extra={"word": word} if word else None)


class Parameter(msgspec.Struct, frozen=True):
    """One thing that a front asks for."""

    name: str
    type: Any
    default: Any = inspect.Parameter.empty
    is_positional: bool = False

    @property
    def is_required(self) -> bool:
        """Whether it has no default."""
        return self.default is inspect.Parameter.empty

    @property
    def help(self) -> str:
        """Its description, in a sentence."""
        return next((it.description for it in self._said if it.description), "")

    @property
    def word(self) -> str:
        """The placeholder of its value in the usage of a command."""
        words = [it.extra["word"] for it in self._said if it.extra and "word" in it.extra]
        return str(words[0]) if words else self.name.upper()

    def needed(self) -> Parameter:
        """Return this parameter without its default."""
        return Parameter(self.name, _without_none(self.type), is_positional=self.is_positional)

    @property
    def kinds(self) -> frozenset[Any]:
        """The plain types that it may have: `str`, `int`, a Literal, …"""
        return frozenset(_kinds(self.type))

    def misfit(self, value: Any) -> str:
        """Return what is expected instead of a value, or nothing if the value fits. Nothing is
        converted: 1 is not true, and "1" is not a number."""
        form = _form(self.type)
        if form is not None:
            fits = any(_is_of(value, kind) for kind in self.kinds)
            return "" if fits else f"expected {form.EXPECTED}"
        if dt.timedelta in self.kinds:
            return ""  # A duration has forms that no annotation describes: the action checks it.
        try:
            msgspec.convert(value, self.type)
        except msgspec.ValidationError as error:
            named = [
                it for kind in self.kinds if get_origin(kind) is Literal for it in get_args(kind)
            ]
            if named:
                return f"expected {' or '.join(map(repr, named))}"
            wanted = str(error).partition(", got ")[0]
            return wanted[:1].lower() + wanted[1:]
        return ""

    @property
    def _said(self) -> list[Meta]:
        metadata: tuple[Any, ...] = getattr(self.type, "__metadata__", ())
        return [it for it in reversed(metadata) if isinstance(it, Meta)]


class Action(msgspec.Struct, frozen=True):
    """The declaration of an action, as read from its method."""

    name: str
    role: RoleName
    """The role that may do it over HTTP."""
    method: Callable[..., Any]
    seen: tuple[str, ...] = ()
    """Parameters that every front but Python and the terminal must give: they name the version that the
    actor saw."""
    is_message: bool = False
    """Whether it may be sent without having seen the run's version."""
    only_local: str = ""
    """Why it is no route and no tool."""

    @property
    def help(self) -> str:
        """Its description, in a line."""
        return (inspect.getdoc(self.method) or "").partition("\n")[0]

    @property
    def path(self) -> str:
        """The path of its route under the API."""
        if self.parameters and self.parameters[0].name == "run_id":
            return f"run/{self.name.replace('_', '-')}"
        verb, _, thing = self.name.partition("_")
        if self.subject is None:
            return self.name.replace("_", "-")
        return thing if verb == "set" else f"{thing}/{verb}"

    @property
    def subject(self) -> Parameter | None:
        """The run or other thing it is about; None if it is about many."""
        first = self.parameters[0] if self.parameters else None
        return first if first is not None and first.name in ("run_id", "name") else None

    def takes(self, name: str) -> bool:
        """Return whether the method has this parameter."""
        return name in inspect.signature(self.method).parameters

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters that a front asks for, the subject first."""
        found: list[Parameter] = []
        for declared in _declared(self.method).values():
            form = _form(declared.type)
            found += [declared] if form is None else map(_of_form, msgspec.structs.fields(form))
        return tuple(found)

    @property
    def remote_parameters(self) -> tuple[Parameter, ...]:
        """The same for those who decide from afar: what says what they have seen is required."""
        return tuple(it.needed() if it.name in self.seen else it for it in self.parameters)

    def struct(
        self, parameters: Iterable[Parameter], bases: tuple[type[msgspec.Struct], ...] = ()
    ) -> type[msgspec.Struct]:
        """Return a struct with these parameters as fields, which refuses unknown ones."""
        return msgspec.defstruct(
            "".join(word.title() for word in self.name.split("_")),
            [_field(it) for it in parameters],
            bases=bases or None,
            namespace={"__doc__": self.help},
            forbid_unknown_fields=True,
            kw_only=True,
        )

    def check(self, given: Mapping[str, Any], spelled: Callable[[str], str]) -> None:
        """Refuse a value that does not fit the declaration of its parameter; `spelled` returns how the
        users of a front write a parameter."""
        for parameter in self.parameters:
            value = given.get(parameter.name, UNSET)
            if value is not UNSET and (wrong := parameter.misfit(value)):
                raise UsageError(f"{spelled(parameter.name)}: {wrong}, not {_short_repr(value)}")

    def perform(
        self,
        store: Any,
        given: Mapping[str, Any],
        spelled: Callable[[str], str] = str,
        **supplied: Any,
    ) -> Any:
        """Call the method of a store with what was asked for, by name, and what the front supplies;
        `spelled` returns how the users of the front write a parameter."""
        self.check(given, spelled)
        arguments = {name: it for name, it in supplied.items() if self.takes(name)}
        for name, parameter in _declared(self.method).items():
            form = _form(parameter.type)
            if form is not None:
                fields = {it: given[it] for it in form.__struct_fields__ if it in given}
                arguments[name] = form(**fields).value(store, given)
            elif given.get(name, UNSET) is not UNSET:
                arguments[name] = given[name]
        return self.method(store, **arguments)


def _field(parameter: Parameter) -> Any:
    if parameter.is_required:
        return parameter.name, parameter.type
    if parameter.default is UNSET:
        return parameter.name, parameter.type | msgspec.UnsetType, UNSET
    return parameter.name, parameter.type, parameter.default


def action(
    role: RoleName, *, seen: tuple[str, ...] = (), is_message: bool = False, only_local: str = ""
) -> Callable[[F], F]:
    """Declare a method of `Store` as an action."""

    def declare(method: F) -> F:
        name = method.__name__
        _ACTIONS[name] = Action(name, role, method, seen, is_message, only_local)
        return _checked(method)

    return declare


def _checked(method: F) -> F:
    """Return the method, which refuses arguments that do not fit its annotations."""
    names = list(inspect.signature(method).parameters)

    @functools.wraps(method)
    def checked(*args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        for name, parameter in _signature(method).items():
            if name in CHECKED_BY_ACTIONS or name not in given:
                continue
            if wrong := parameter.misfit(given[name]):
                call = f"store.{method.__name__}({name}={_short_repr(given[name])})"
                raise UsageError(f"{call}: {_in_python(wrong)}")
        return method(*args, **kwargs)

    return cast("F", checked)


_PYTHON_NAMES = {"object": "dict", "array": "list", "null": "None"}


def _in_python(expected: str) -> str:
    """Return what is expected with Python's names of types instead of JSON's."""
    return re.sub("|".join(_PYTHON_NAMES), lambda it: _PYTHON_NAMES[it[0]], expected)


SHOWN_CHARS = 80


def _short_repr(value: Any) -> str:
    """Return a refused value as an error shows it: short, and without registered secrets."""
    return masked(repr(value))[:SHOWN_CHARS]


_ACTIONS: dict[str, Action] = {}


def actions() -> tuple[Action, ...]:
    """Return the declarations of what people decide: `Store` has a method of each name. For a front of
    your own: its parameters, their types and texts, and the role that it wants."""
    return tuple(_ACTIONS.values())


def declared(name: str) -> Action:
    """Return the declaration of one action."""
    return _ACTIONS[name]


_PLAIN = (None, False, "", inspect.Parameter.empty)
"""Defaults that a front may show; another one is left to the method."""


@functools.cache
def _declared(method: Callable[..., Any]) -> dict[str, Parameter]:
    """Return the parameters of a method that a front asks for."""
    return {name: it for name, it in _signature(method).items() if name not in SUPPLIED}


@functools.cache
def _signature(method: Callable[..., Any]) -> dict[str, Parameter]:
    """Return all parameters of a method."""
    asked = {it: of for it, of in inspect.signature(method).parameters.items() if it != "self"}
    # Types of results are loaded when they are needed, so only those of parameters are read here.
    holder = types.SimpleNamespace(__annotations__={n: it.annotation for n, it in asked.items()})
    globals_: dict[str, Any] = getattr(method, "__globals__", {})
    hints = get_type_hints(holder, globals_, include_extras=True)
    return {
        name: Parameter(
            name,
            hints[name],
            it.default if it.default in _PLAIN else UNSET,
            it.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD,
        )
        for name, it in asked.items()
    }


def _form(type_: Any) -> Any:
    """Return the form of a parameter's annotation, if it has one."""
    metadata = getattr(type_, "__metadata__", ())
    return next((it for it in metadata if isinstance(it, type)), None)


def _of_form(field: msgspec.structs.FieldInfo) -> Parameter:
    if field.required:
        return Parameter(field.name, field.type, is_positional=True)
    return Parameter(field.name, field.type, field.default)


def _is_of(value: Any, kind: Any) -> bool:
    if get_origin(kind) is Literal:
        return any(value is it for it in get_args(kind))
    return isinstance(value, get_origin(kind) or kind)


def _kinds(type_: Any) -> Iterator[Any]:
    if get_origin(type_) is Annotated:
        yield from _kinds(get_args(type_)[0])
    elif get_origin(type_) in (Union, types.UnionType):
        for each in get_args(type_):
            yield from _kinds(each)
    else:
        yield type_


def _without_none(type_: Any) -> Any:
    if get_origin(type_) is Annotated:
        inner, *metadata = get_args(type_)
        return Annotated[(_without_none(inner), *metadata)]
    if get_origin(type_) in (Union, types.UnionType):
        return Union[tuple(it for it in get_args(type_) if it is not type(None))]  # noqa: UP007
    return type_
