"""Arguments: bound to the signature once, split into what is recorded and what is only used.

A call's arguments are bound to names, so that positional and keyword calls are the same call.
Defaults are applied. `resource(factory)` defaults, `self` and parameters named in `unrecorded=` are
handed to the body and are no part of the record or its digest.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

from holdfast.errors import UsageError

T = TypeVar("T")

_PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_ANY_NUMBER = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


class Use:
    """The default of a parameter that is filled with a resource."""

    __slots__ = ("factory",)

    def __init__(self, factory: Callable[[], Any]) -> None:
        self.factory = factory


def resource(factory: Callable[[], T]) -> T:
    """Mark a parameter as a client or secret: built once per store, never recorded.

    `def think(messages: list[dict], client: Client = resource(make_client)) -> dict: ...`
    """
    if not callable(factory):
        raise UsageError("resource(factory) takes a function that builds the resource")
    return cast("T", Use(factory))


class Signature:
    """How to bind the calls of one function."""

    def __init__(
        self, fn: Callable[..., Any], *, skip_self: bool, unrecorded: Sequence[str] = ()
    ) -> None:
        parameters = list(inspect.signature(fn).parameters.values())
        if skip_self:
            parameters = parameters[1:]
        self._signature = inspect.Signature(parameters)
        self.shown = self._signature
        """The signature that `inspect.signature` returns for a bound method."""
        names = {parameter.name for parameter in parameters}
        missing = [name for name in unrecorded if name not in names]
        if missing:
            raise UsageError(f"unrecorded={missing} of {fn.__qualname__}: no such parameter")
        self.resources = {
            parameter.name: parameter.default
            for parameter in parameters
            if isinstance(parameter.default, Use)
        }
        self.hidden = frozenset(unrecorded) | self.resources.keys()
        self.defaults: dict[str, Any] = {
            parameter.name: parameter.default
            for parameter in parameters
            if parameter.default is not inspect.Parameter.empty
            and not isinstance(parameter.default, Use)
        }
        self._fast = all(parameter.kind in _PLAIN for parameter in parameters)
        self._positional = tuple(
            parameter.name
            for parameter in parameters
            if parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
        )
        self.is_plain = self._fast and not self.resources
        """Whether a call takes all its arguments by name, as they are bound."""
        self._expected = frozenset(parameter.name for parameter in parameters)
        # Given values take the places of the defaults, so the order is that of the signature
        # only up to the first parameter without one; the digest does not depend on the order.
        self._template: dict[str, Any] = {**self.defaults, **self.resources}

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """Return all arguments by name, with defaults; raises TypeError as a call would."""
        if self._fast and len(args) <= len(self._positional):
            bound = dict(zip(self._positional, args, strict=False))
            if not (kwargs and bound.keys() & kwargs.keys()):
                given = {**self._template, **bound, **kwargs}
                if given.keys() == self._expected:
                    return given
        slow = self._signature.bind(*args, **kwargs)
        slow.apply_defaults()
        return dict(slow.arguments)

    def why_not(self, error: TypeError, kwargs: dict[str, Any]) -> str:
        """Return why a call cannot be bound: the missing or the unknown arguments."""
        parameters = self._signature.parameters
        if any(it.kind is inspect.Parameter.VAR_KEYWORD for it in parameters.values()):
            return str(error)
        told = str(error)
        unknown = [repr(it) for it in kwargs if it not in parameters and repr(it) not in told]
        return f"{told}; there is no argument {', '.join(unknown)}" if unknown else told

    def misfit(self, recorded: dict[str, Any]) -> str:
        """Return why the function cannot be called with recorded arguments; "" if it can."""
        parameters = self._signature.parameters
        given = self._template.keys() | recorded.keys()
        needed = [
            name
            for name, parameter in parameters.items()
            if name not in given and parameter.kind not in _ANY_NUMBER
        ]
        gone = [name for name in recorded if name not in parameters]
        told = [f"now needs {', '.join(needed)}, which is not recorded"] if needed else []
        told += [f"no longer takes {', '.join(gone)}, which is recorded"] if gone else []
        return " and ".join(told)

    def recorded(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments that are part of the record."""
        if not self.hidden:
            return arguments
        return {name: value for name, value in arguments.items() if name not in self.hidden}

    def call_form(
        self, arguments: dict[str, Any], resource: Callable[[Callable[[], Any]], Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return args and kwargs for the call itself, resources filled in."""
        if self.resources:
            arguments = {
                name: resource(value.factory) if isinstance(value, Use) else value
                for name, value in arguments.items()
            }
        if self._fast:
            return (), arguments
        bound = inspect.BoundArguments(self._signature, cast("Any", arguments))
        return bound.args, bound.kwargs


_parsing = threading.Lock()
"""Python 3.11 counts the depth of all parsers of a process together, and stops when it is wrong."""


def fingerprint(fn: Callable[..., Any]) -> str:
    """Return a digest of a function's normalised source: for people, never for the rules."""
    # Functions that are made anew for each call share their code, and so the work.
    return _fingerprint(fn if hasattr(fn, "__wrapped__") else getattr(fn, "__code__", fn))


@functools.lru_cache(maxsize=1024)
def _fingerprint(source: Any) -> str:
    import ast
    import textwrap

    try:
        text = textwrap.dedent(inspect.getsource(source))
        with _parsing:
            normalised = ast.dump(ast.parse(text))
    except (OSError, TypeError, SyntaxError, IndentationError):
        return ""
    return hashlib.blake2b(normalised.encode(), digest_size=8).hexdigest()
