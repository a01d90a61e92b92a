"""Which functions can be recorded, and which of them are methods."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from holdfast.errors import UsageError


def check_function(what: str, fn: Any) -> None:
    """Refuse what cannot be a step or an effect, saying what to write instead."""
    if not callable(fn) or isinstance(fn, type):
        raise UsageError(f"@{what} takes a function, not {fn!r:.80}")
    if not hasattr(fn, "__qualname__"):
        raise UsageError(
            f"@{what} takes a function with a name, not {fn!r:.80}; write a `def` round it, "
            "or record single calls with holdfast.run_step('name', …)"
        )
    if hasattr(fn, "_settings"):
        raise UsageError(f"{fn!r} is recorded already; decorate the bare function once")
    if inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn):
        raise UsageError(
            f"{fn.__qualname__} is a generator function; a {what} returns one value "
            "(collect the parts, and use holdfast.emit for live output)"
        )


def is_method(fn: Callable[..., Any]) -> bool:
    """Return whether a function was written in a class body and takes `self`."""
    parent, _, _ = fn.__qualname__.rpartition(".")
    if not parent or parent.endswith("<locals>") or inspect.ismethod(fn):
        return False
    first = next(iter(inspect.signature(fn).parameters), None)
    return first in ("self", "cls")
