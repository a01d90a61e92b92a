"""Format text for people: times, lengths, counts, and untrusted text made inert.

Names, payloads and what models wrote may hold anything. Whatever is shown passes `visible`, so that
it cannot move a cursor, change a colour, or make text look like what it is not.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import msgspec

from holdfast._engine.values.moments import at

_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
"""Control, formatting (bidi marks and zero-width among them), surrogate, private, unassigned."""
_UNSEEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U0001d159\U000e0100-\U000e01ef]"
)
"""Of other categories, and yet nothing is seen of them: fillers, blanks, selectors of variants."""
_MARKS_MAX = 4
"""How many marks may stand on one letter. More hide what is below or beside them."""

SHOWN_CHARS = 400
"""How much of one value stands in a text for people; `--json` and `history` have all of it."""


def visible(text: str, *, lines: bool = False) -> str:
    """Return text with everything that is not plainly visible escaped; with `lines`, breaks stay."""
    if text.isascii() and text.isprintable():
        return text
    made: list[str] = []
    room = 0  # How many marks the last letter may still have; none stands on nothing.
    for char in text:
        kind = unicodedata.category(char)
        is_mark = kind.startswith("M")
        if lines and char == "\n":
            made.append(char)
            room = 0
        elif _is_hidden(char, kind) or (is_mark and room == 0):
            made.append(_escaped(char))
            room = 0
        else:
            made.append(char)
            room = room - 1 if is_mark else _MARKS_MAX
    return "".join(made)


def _is_hidden(char: str, kind: str) -> bool:
    if kind in _HIDDEN or (char != " " and char.isspace()):
        return True
    return _UNSEEN.match(char) is not None


def _escaped(char: str) -> str:
    if char in "\n\r\t":
        return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}[char]
    code = ord(char)
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def clipped(text: str, chars: int = SHOWN_CHARS) -> str:
    """Return text that is no longer than this, saying how much is left out."""
    if len(text) <= chars:
        return text
    return f"{text[:chars]}… ({len(text) - chars:,} more characters)"


def brief_json(value: Any, chars: int = SHOWN_CHARS) -> str:
    """Return a readable value as one short line."""
    return clipped(visible(msgspec.json.encode(value).decode()), chars)


def length(seconds: float) -> str:
    """Return a span of time in the unit in which a person thinks of it."""
    if seconds < 0.0995:
        return f"{seconds * 1000:.0f} ms"
    for unit, size, limit in (("s", 1, 120), ("min", 60, 7200), ("h", 3600, 172_800)):
        if seconds < limit:
            count = seconds / size
            return f"{count:.1f} {unit}" if count < 10 and unit == "s" else f"{count:.0f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def ago(at_us: int, now_us: int) -> str:
    """Return how long ago something was."""
    seconds = (now_us - at_us) / 1e6
    return "just now" if seconds < 1 else f"{length(seconds)} ago"


def moment(at_us: int) -> str:
    """Return a time of the store, in UTC, to the second."""
    return at(at_us).strftime("%Y-%m-%d %H:%M:%S UTC")


def count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"
