"""Named SQL: all statements of a dialect are in one file, each with a name."""

from __future__ import annotations

import re
from importlib.resources import files

_BLOCK = re.compile(r"^-- name: (\w+)\n(.*?)(?=^-- |\Z)", re.MULTILINE | re.DOTALL)
_FRAGMENT = re.compile(r"\{(\w+)\}")


def parse(text: str) -> dict[str, str]:
    """Split a file into its named statements; `{name}` includes another block."""
    blocks: dict[str, str] = {}
    for name, body in _BLOCK.findall(text):
        assert name not in blocks, f"two statements are named {name}"
        blocks[name] = _FRAGMENT.sub(lambda found: blocks[found[1]], body.strip())
    return blocks


def load(name: str) -> dict[str, str]:
    """Return the statements of a file beside this module."""
    return parse(files("holdfast._stores").joinpath(name).read_text("utf-8"))
