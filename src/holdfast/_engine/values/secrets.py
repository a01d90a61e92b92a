"""Secrets: registered under a name, and masked by it wherever they would be stored or shown.

A process registers its secrets when it starts. From then on `[secret NAME]` replaces each of them
in everything that its runs write (values, errors, states, emitted values), in log lines of Holdfast
and in those that pass the logging filter. A `Secret` that is passed to a step is stored as its name
alone; its text is looked up where it is used.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast._engine.values import masks
from holdfast._engine.values.class_registry import KNOWN
from holdfast._engine.values.redactor import Redact, redacted
from holdfast.errors import UsageError

SECRET_MIN_CHARS = 8
"""A shorter text would also match unrelated texts."""


class Secret(msgspec.Struct, frozen=True):
    """A secret by its name; `reveal()` alone returns the text."""

    name: str

    def reveal(self) -> str:
        """Return the text; raises UsageError if this process has not registered it."""
        text = masks.text_of(self.name)
        if text is None:
            raise UsageError(
                f"this process does not know the secret {self.name!r}; register it at its start: "
                f"holdfast.redaction.register_secret({self.name!r}, text)"
            )
        return text

    def __str__(self) -> str:
        return f"[secret {self.name}]"

    def __repr__(self) -> str:
        return f"Secret({self.name!r})"


KNOWN.register(Secret, "holdfast.Secret")


def registered(name: str, text: str) -> Secret:
    """Register a secret; the same name again replaces it, and the old text stays masked."""
    if not isinstance(text, str) or len(text) < SECRET_MIN_CHARS:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise UsageError(
            f"the secret {name!r} is a str of {SECRET_MIN_CHARS} or more characters: a shorter one "
            "would match unrelated texts"
        )
    masks.mask(name, text)
    return Secret(name)


def masked_value(value: Any, path: str) -> Any:
    """Return a value to store, with its secrets masked."""
    return redacted(value, path, _mask_part) if masks.any_masked() else value


def masking(own: Redact | None) -> Redact | None:
    """Return the redaction of values: the user's function, then every secret. None if there is
    nothing to redact."""
    if not masks.any_masked():
        return own
    if own is None:
        return _mask_part
    return lambda path, part: _mask_part(path, own(path, part))


def _mask_part(_path: str, part: Any) -> Any:
    if type(part) is str and masks.holds_secret(part):
        return masks.masked(part)
    if isinstance(part, bytes | bytearray):
        return _masked_bytes(part)
    return part


def _masked_bytes(part: bytes | bytearray) -> bytes | bytearray:
    """Return bytes without secrets, in whichever usual encoding of the text."""
    for encoding in ("utf-8", "latin-1", "utf-16-le", "utf-16-be"):
        try:
            text = part.decode(encoding)
        except UnicodeDecodeError:
            continue
        if masks.holds_secret(text):
            return type(part)(masks.masked(text).encode(encoding, "replace"))
    return part
