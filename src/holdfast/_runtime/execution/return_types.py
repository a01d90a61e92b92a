"""The return type of an effect, by its annotation. It is used only if another source gives the result:
nothing here is on the way of a call that returns by itself."""

from __future__ import annotations

import datetime as dt
import typing
from collections.abc import Callable
from typing import Any

import msgspec

from holdfast._engine.values import codec
from holdfast._engine.values.class_registry import KNOWN
from holdfast._engine.values.node_writer import is_plain

_UNREADABLE = (NameError, AttributeError, TypeError, RecursionError)
"""Errors of annotations that describe no data, or name a type that only a type checker knows."""


class Returns:
    """The return annotation of a function, read when it is needed.

    Nothing that an annotation says may come between an effect and the record of its doubt: one that
    cannot be read says nothing.
    """

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    def schema(self) -> dict[str, Any] | None:
        """Describe it without its class; None if nothing is known."""
        wanted = self._wanted()
        if wanted is None:
            return None
        try:
            schema = schema_of(wanted)
        except Exception:
            return None
        if schema is not None and hasattr(wanted, "model_validate"):
            # Validators, aliases and lax types take more than the schema of a model says.
            return {"type": "object"} if schema.get("type") == "object" else None
        return schema

    def fitted(self, value: Any) -> Any:
        """Return a value as what the function returns; ValueError says why it is none."""
        wanted = self._wanted()
        if wanted is None or not is_plain(value):
            return value
        try:
            if schema_of(wanted) is None:
                return value
            return converted(value, wanted)
        except _UNREADABLE:
            return value
        except ValueError as error:
            raise ValueError(str(error)) from None
        except Exception as error:  # The class itself refuses the value.
            raise ValueError(f"{type(error).__name__}: {error}") from error

    def _wanted(self) -> Any:
        try:
            return typing.get_type_hints(self._fn).get("return")
        except Exception:  # A name that only the type checker knows.
            return None


def converted(value: Any, wanted: Any) -> Any:
    """Return a value as the type that is asked for; a pydantic model makes itself."""
    if not hasattr(wanted, "model_validate"):
        return msgspec.convert(value, wanted, str_keys=True)
    if isinstance(value, wanted):
        return value
    if not is_plain(value) or not hasattr(wanted, "model_validate_json"):
        return wanted.model_validate(value)
    # As JSON: a strict model takes a date or a UUID as text only there.
    return wanted.model_validate_json(msgspec.json.encode(value))


def schema_of(wanted: Any) -> dict[str, Any] | None:
    """Describe a type without its class, or return None."""
    try:
        if hasattr(wanted, "model_json_schema"):
            return dict(wanted.model_json_schema())
        schema = msgspec.json.schema(wanted)
        return {**schema, "format": "date-time"} if wanted is dt.datetime else schema
    except TypeError:
        return None


def payload_reader(wanted: Any) -> Callable[[bytes], Any]:
    """Return how the payload of a message is read: as it was written, made the type that is asked
    for if it came as plain data (from a command line)."""
    if wanted is not None:
        KNOWN.learn(wanted)

    def read(body: bytes) -> Any:
        value = codec.decode(bytes(msgspec.json.decode(body, type=dict[str, msgspec.Raw])["value"]))
        if wanted is None:
            return value
        return converted(value, wanted)

    return read
