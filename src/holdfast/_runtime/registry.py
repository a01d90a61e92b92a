"""Names of flows and steps. One name, one function; the same function again replaces itself."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from holdfast._engine.journal.step_keys import check_name
from holdfast._engine.values.class_registry import KNOWN
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast._engine.scripts.requests import Spec
    from holdfast._runtime.queues import Queue
    from holdfast._runtime.signatures import Signature

T = TypeVar("T")


class RegisteredFlow:
    """A flow as the floors below its decorator know it: what it declares, and how it is executed."""

    awaits: bool
    fn: Callable[..., Any]
    name: str
    version: str
    aliases: tuple[str, ...]
    is_method: bool
    queue: Queue | None
    _drift: Any
    keep_us: int | None
    watch: Any

    @property
    def runs_versions(self) -> tuple[str, ...]:
        """The versions whose runs a worker with this flow claims."""
        raise NotImplementedError

    def code(self) -> str:
        """Return what tells this deploy of the flow from others: version and fingerprint."""
        raise NotImplementedError

    def _function(self) -> Callable[..., Any]:
        """Return the flow's own function, bound if it is a method."""
        raise NotImplementedError

    def _request_for(self, run_id: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what a call of run, start or submit asks for, under a checked or derived id."""
        raise NotImplementedError

    def _arguments_of(self, execution: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the recorded input in the form of a call, with today's defaults and resources."""
        raise NotImplementedError

    def _execute(self, execution: Any) -> Any:
        """Execute a claimed run here; awaited, if the flow awaits."""
        raise NotImplementedError


class RegisteredStep:
    """The declaration of a step or effect, as the floors below its decorator know it."""

    fn: Callable[..., Any]
    name: str
    spec: Spec
    signature: Signature
    method: bool
    undo: Any
    drift: Any


_LOCALS = re.compile(r"<locals>\.")
_ODD = re.compile(r"[<>]")

_functions: dict[tuple[str, str], Callable[..., Any]] = {}
flows: dict[str, RegisteredFlow] = {}
"""Every flow of this process, by name and alias."""
steps: dict[str, RegisteredStep] = {}
"""Every step and effect of this process, by name and alias."""


effects: dict[str, RegisteredStep] = {}
"""Every effect of this process, by name and alias: who rolls a run back looks for its undo."""


def name_for(what: str, fn: Callable[..., Any], name: str | None) -> str:
    """Return the name of a function, and see to it that no other function has it."""
    if name is None:
        name = _ODD.sub("", _LOCALS.sub("", fn.__qualname__))
    check_name(what, name)
    known = _functions.get((what, name))
    if known is not None:
        check_same(what, name, known, fn)
    _functions[what, name] = fn
    return name


def check_same(what: str, name: str, known: Callable[..., Any], fn: Callable[..., Any]) -> None:
    """Refuse a name that belongs to another function."""
    if not _same(known, fn):
        raise UsageError(
            f"two different functions are the {what} {name!r}: {_where(known)} and {_where(fn)}; "
            "give one of them name="
        )


def _same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Return whether two functions are one definition, loaded again (notebook, reload)."""
    if one.__qualname__ != other.__qualname__:
        return False
    return one.__module__ == other.__module__ or _file(one) == _file(other)


def _file(fn: Callable[..., Any]) -> str | None:
    code = getattr(fn, "__code__", None)
    return code.co_filename if code is not None else None


def _where(fn: Callable[..., Any]) -> str:
    return f"{fn.__module__}.{fn.__qualname__}"


def learn_types(fn: Callable[..., Any]) -> None:
    """Make the classes in a function's annotations known to the reader of values."""
    try:
        hints = typing.get_type_hints(fn)
    except Exception:
        hints = {
            name: hint
            for name, hint in getattr(fn, "__annotations__", {}).items()
            if not isinstance(hint, str)
        }
    for hint in hints.values():
        KNOWN.learn(hint)


def register_type(
    cls: type[T],
    name: str | None = None,
    *,
    upgrade: Callable[[dict[str, Any]], T | Mapping[str, Any]] | None = None,
) -> type[T]:
    """Make a class known to the reader of values, under its own or another short name.

    `upgrade` is called with the fields of a stored value that the class cannot take any more (for an
    enum: its `name`), and returns an object of the class, or the fields of one.
    """
    return KNOWN.register(cls, name, upgrade)
