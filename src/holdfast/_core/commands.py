"""Command lines for people: they can be pasted into a shell, whatever stands in the arguments."""

from __future__ import annotations

import shlex


def command(name: str, *arguments: str) -> str:
    """Return a `holdfast` command line."""
    return " ".join(["holdfast", name, *map(shlex.quote, arguments)])
