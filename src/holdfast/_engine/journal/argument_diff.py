"""The difference between a call's arguments and the recorded ones, as one short text. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, cast

from holdfast._engine.journal.step_record import Record
from holdfast._engine.values.class_codecs import Misfit, class_of
from holdfast._engine.values.class_registry import KNOWN
from holdfast._engine.values.redactor import Redact, redacted
from holdfast.errors import NotSerializable

SHOWN_MAX = 3
"""How many differences are named."""
TEXT_MAX_CHARS = 60
_BEFORE_CHARS = 20
"""How much of a long text is shown before its first difference."""
_DEPTH_MAX = 30

_NOTHING: Any = object()


def now(
    record: Record | None, digest: bytes, given: dict[str, Any], key: str, redact: Redact | None
) -> dict[str, Any] | None:
    """Return the arguments of a call as they may be shown, if different ones are recorded."""
    if record is None or record.args_digest in (None, digest):
        return None
    if redact is None:
        return given
    try:
        return cast("dict[str, Any]", redacted(given, f"{key}: argument", redact))
    except NotSerializable:
        return None


def difference(before: dict[str, Any], after: dict[str, Any]) -> str:
    """Return where two sets of arguments differ: path, what is recorded, what is given now."""
    found = list(itertools.islice(_between(before, after, "", 0), SHOWN_MAX + 1))
    parts = [f"{path} was {one}, is {other}" for path, one, other in found[:SHOWN_MAX]]
    more = ["and more"] if len(found) > SHOWN_MAX else []
    return "; ".join(parts + more)


def _between(before: Any, after: Any, path: str, depth: int) -> Iterator[tuple[str, str, str]]:
    kind = class_of(before)
    if kind is class_of(after) and depth < _DEPTH_MAX:
        if kind is dict:
            yield from _of_names(before, after, path, depth + 1)
            return
        if kind in (list, tuple):
            yield from _of_items(before, after, path, depth + 1)
            return
        parts, others = _parts(before), _parts(after)
        if parts is not None and others is not None:
            yield from _of_names(parts, others, path, depth + 1)
            return
    one, other = _pair(before, after)
    if one != other:
        yield path or "all of it", one, other


def _of_names(
    before: dict[Any, Any], after: dict[Any, Any], path: str, depth: int
) -> Iterator[tuple[str, str, str]]:
    for name in dict.fromkeys((*before, *after)):
        inside = f"{path}.{name}" if path else str(name)
        yield from _between(before.get(name, _NOTHING), after.get(name, _NOTHING), inside, depth)


def _of_items(before: Any, after: Any, path: str, depth: int) -> Iterator[tuple[str, str, str]]:
    pairs = itertools.zip_longest(before, after, fillvalue=_NOTHING)
    for place, (one, other) in enumerate(pairs):
        yield from _between(one, other, f"{path}[{place}]", depth)


def _parts(value: Any) -> dict[str, Any] | None:
    """Return the fields of an object that the journal can contain."""
    shape = KNOWN.shape(class_of(value))
    if shape is None:
        return None
    try:
        return {name: it for part in shape.apart(value) for name, it in part.items()}
    except Misfit:
        return None


def _pair(before: Any, after: Any) -> tuple[str, str]:
    """Return two values as they are shown; of long texts the part that differs."""
    if type(before) is str and type(after) is str:
        same = 0
        while same < min(len(before), len(after)) and before[same] == after[same]:
            same += 1
        start = max(0, same - _BEFORE_CHARS)
        return _piece(before, start), _piece(after, start)
    return _short(before), _short(after)


def _piece(text: str, start: int) -> str:
    if len(text) <= TEXT_MAX_CHARS:
        return repr(text)
    end = start + TEXT_MAX_CHARS
    return f"{'…' if start else ''}{text[start:end]!r}{'…' if end < len(text) else ''}"


def _short(value: Any) -> str:
    if value is _NOTHING:
        return "not there"
    shown = repr(value)
    return shown if len(shown) <= TEXT_MAX_CHARS else f"{shown[:TEXT_MAX_CHARS]}…"
