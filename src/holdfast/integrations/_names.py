"""Names that others made up, in a form that can stand in keys.

Names of tools, agents and conversations may have any length and any characters. One that fits is
taken as it is. Of any other the first characters that fit are kept, for people, and a digest of the
whole stands behind them, so that no two names become one.
"""

from __future__ import annotations

import hashlib

_NAME_CHARS, _SHOWN_CHARS = 100, 60
_MEANT = frozenset("/#[]:")
"""What has a meaning in step keys."""
_CUT = "~"
"""Stands before a digest, and so in no name that is taken as it is."""


def fitting(name: str) -> str:
    """Return a name that is short, visible and without what has a meaning in step keys."""
    if name and len(name) <= _NAME_CHARS and name == name.strip() and all(map(_fits, name)):
        return name
    shown = "".join(char if _fits(char) else "." for char in name[:_SHOWN_CHARS]).strip()
    whole = name.encode("utf-8", "surrogatepass")
    return f"{shown}{_CUT}{hashlib.blake2b(whole, digest_size=16).hexdigest()}"


def _fits(char: str) -> bool:
    return char.isprintable() and char not in _MEANT and char != _CUT
