"""Redaction: values that must not be stored are replaced before they are written. Pure.

A `redact` function of the user receives every leaf of a value with its path, and returns what to store.
Values are rebuilt only where something changed. Digests are made of the original, so a replay that
computes the same arguments still matches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from holdfast._engine.values.class_codecs import Misfit, class_of
from holdfast._engine.values.class_registry import KNOWN, Known
from holdfast._engine.values.masks import masked
from holdfast._engine.values.node_parts import DEPTH_MAX_LEVELS
from holdfast.errors import NotSerializable

Redact = Callable[[str, Any], Any]
"""Receives the path to a part and the part; returns the value to store."""

ERRORS = ("error", "degraded")
"""The facts of an entry that describe an exception."""
UNTOLD = "(not stored: the redact function failed)"


def redacted(value: Any, path: str, redact: Redact, known: Known = KNOWN) -> Any:
    """Return a value as it is to be stored; the same object if nothing was redacted."""
    return _Redacting(redact, known).part(value, path, 0)


def redact_facts(facts: dict[str, Any], step: str, redact: Redact | None) -> str:
    """Redact the facts of an entry; returns the beginning of the paths to its values."""
    if redact is None:
        return ""
    for name in ERRORS:
        redact_error(facts.get(name), f"{step}: {name}", redact)
    return f"{step}: "


def redact_error(error: Any, path: str, redact: Redact) -> None:
    """Redact an error as the journal stores it: in place, since the flow receives the same."""
    if not isinstance(error, dict):
        return
    told = cast("dict[str, Any]", error)
    if "message" in told:
        told["message"] = redact_text(str(told["message"]), path, redact)


def redact_text(text: str, path: str, redact: Redact | None) -> str:
    """Return a text of Holdfast that may contain user data, as it is to be stored."""
    if redact is None:
        return text
    try:
        made = redact(path, text)
    except Exception:
        return UNTOLD
    return made if isinstance(made, str) else repr(made)


class _Redacting:
    """One value on its way through a redact function."""

    def __init__(self, redact: Redact, known: Known) -> None:
        self._redact = redact
        self._known = known

    def part(self, value: Any, path: str, level: int) -> Any:
        kind = class_of(value)
        if level > DEPTH_MAX_LEVELS:
            return value  # The writer refuses it.
        if kind is dict:
            return self._dict(value, path, level)
        if kind in (list, tuple, set, frozenset):
            return self._items(value, kind, path, level)
        shape = self._known.shape(kind)
        if shape is not None:
            return self._object(value, shape, path, level)
        try:
            return self._redact(path, value)
        except Exception as error:
            why = f"the redact function raised {type(error).__name__}, so it is not stored"
            raise NotSerializable(path, why) from error

    def _dict(self, value: dict[Any, Any], path: str, level: int) -> Any:
        made = {
            _open(key): self.part(it, _under(path, key), level + 1) for key, it in value.items()
        }
        same = all(key in made and made[key] is it for key, it in value.items())
        return value if same else made

    def _items(self, value: Any, kind: type[Any], path: str, level: int) -> Any:
        items = list(value)
        made = [self.part(it, f"{path}[{n}]", level + 1) for n, it in enumerate(items)]
        same = all(new is old for new, old in zip(made, items, strict=True))
        return value if same else kind(made)

    def _object(self, value: Any, shape: Any, path: str, level: int) -> Any:
        try:
            parts = shape.apart(value)
        except Misfit:
            return value  # The writer refuses it, and says why.
        made = tuple(self._dict(part, path, level) for part in parts)
        same = all(new is old for new, old in zip(made, parts, strict=True))
        return value if same else shape.build(made)


def _open(key: object) -> object:
    """Return the key of a dict as it may be shown."""
    return masked(key) if type(key) is str else key


def _under(path: str, key: object) -> str:
    return f"{path}.{key}" if isinstance(key, str) else f"{path}[{key!r}]"
