"""Foreign names in a form that is valid in keys.

Names of tools, agents and conversations may have any length and any characters. A valid one is used
unchanged. Of any other the valid beginning is kept, for people, with a digest of the whole behind
it, so that no two names become one.
"""

from __future__ import annotations

import hashlib

_NAME_CHARS, _SHOWN_CHARS = 100, 60
_MEANT = frozenset("/#[]:")
"""Characters with a meaning in step keys."""
_CUT = "~"
"""The prefix of a digest, which no unchanged name contains."""


def fitting(name: str) -> str:
    """Return a name that is short, visible and without characters of step keys."""
    if name and len(name) <= _NAME_CHARS and name == name.strip() and all(map(_fits, name)):
        return name
    shown = "".join(char if _fits(char) else "." for char in name[:_SHOWN_CHARS]).strip()
    whole = name.encode("utf-8", "surrogatepass")
    return f"{shown}{_CUT}{hashlib.blake2b(whole, digest_size=16).hexdigest()}"


def _fits(char: str) -> bool:
    return char.isprintable() and char not in _MEANT and char != _CUT
