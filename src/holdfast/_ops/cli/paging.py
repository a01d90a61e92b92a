"""Long output on a terminal goes through a pager; short output, a file and a pipe never do.

HOLDFAST_PAGER says which, else PAGER, else `less -FRX`; an empty one or `cat` means none. What is
printed is inert before it comes here: control characters of others are escaped, and the only
sequences left are our own colours, which are taken out for pagers that may not know them.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.text import Text

DEFAULT = "less -FRX"
_NONE = ("", "cat")


def pager(environ: Mapping[str, str]) -> list[str] | None:
    """Return the command that shows long output, or None."""
    for name in ("HOLDFAST_PAGER", "PAGER"):
        if name in environ:
            wanted = environ[name].strip()
            break
    else:
        wanted = DEFAULT
    with contextlib.suppress(ValueError):  # A quote that is never closed.
        words = shlex.split(wanted)
        return None if wanted in _NONE or not words else words
    return None


@contextmanager
def paged(out: Console, command: Sequence[str] | None) -> Generator[None, None, None]:
    """Gather what is printed on a terminal, and show it through a pager if it is too long."""
    if command is None or not out.is_terminal or not sys.stdin.isatty():
        yield
        return
    out.begin_capture()
    try:
        yield
    finally:
        text = out.end_capture()
        if not (_rows(text, out.width) >= out.height and _shown(text, command)):
            sys.stdout.write(text)
            sys.stdout.flush()


def _rows(text: str, width: int) -> int:
    """Return how many rows of a terminal a text takes."""
    lines = text.splitlines()
    if len(lines) > 1000:
        return len(lines)
    return sum(max(1, -(-Text.from_ansi(line).cell_len // max(width, 1))) for line in lines)


def _shown(text: str, command: Sequence[str]) -> bool:
    """Show a text; False if there is no such pager."""
    if Path(command[0]).name != "less":
        text = Text.from_ansi(text).plain
    environ = {"LESS": "FRX", **os.environ}
    try:
        process = subprocess.Popen(  # noqa: S603 - what this user has chosen to read with
            command, stdin=subprocess.PIPE, env=environ
        )
    except OSError:
        return False
    # Whoever has read enough leaves; Ctrl-C is the pager's.
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        process.communicate(text.encode())
    while True:
        with contextlib.suppress(KeyboardInterrupt):
            process.wait()
            return True
