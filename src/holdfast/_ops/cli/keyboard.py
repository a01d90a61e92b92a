"""Keys of a terminal, one at a time, and a terminal that is put back as it was.

While a `Keyboard` is open, keys come without Enter and are not echoed; signals are still made by
Ctrl-C and Ctrl-Z.
"""

from __future__ import annotations

import os
import select
import termios
import tty
from collections.abc import Iterator
from typing import Any, Self

_SEQUENCES = {
    b"[A": "up",
    b"OA": "up",
    b"[B": "down",
    b"OB": "down",
    b"[5~": "page up",
    b"[6~": "page down",
    b"[H": "home",
    b"OH": "home",
    b"[1~": "home",
    b"[F": "end",
    b"OF": "end",
    b"[4~": "end",
}
"""What follows Escape."""
_NAMES = {
    b"\r": "enter",
    b"\n": "enter",
    b"k": "up",
    b"j": "down",
    b"g": "home",
    b"G": "end",
    b" ": "page down",
    b"\x7f": "back",
    b"\x08": "back",
}


class Keyboard:
    """The keys of one terminal."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        self._before = termios.tcgetattr(self._fd)
        tty.setcbreak(self._fd, termios.TCSANOW)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._before is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)

    def pressed(self, timeout_s: float) -> list[str]:
        """Return the keys that were pressed, waiting for one at most so long."""
        ready, _, _ = select.select([self._fd], [], [], timeout_s)
        if not ready:
            return []
        typed = os.read(self._fd, 1024)
        if not typed:
            raise EOFError  # The terminal has gone.
        return list(keys_in(typed))


def keys_in(typed: bytes) -> Iterator[str]:
    """Yield the names of keys: what a terminal sends for one is a byte, or Escape and some more."""
    at = 0
    while at < len(typed):
        if typed[at : at + 1] != b"\x1b":
            char = typed[at : at + 1]
            yield _NAMES.get(char) or char.decode(errors="replace")
            at += 1
            continue
        found = next((it for it in _SEQUENCES if typed.startswith(it, at + 1)), None)
        if found is not None:
            yield _SEQUENCES[found]
            at += 1 + len(found)
        elif typed[at + 1 : at + 2] in (b"[", b"O"):
            at += 2  # A key that nothing is bound to: its sequence ends with a letter or a tilde.
            while at < len(typed) and not 0x40 <= typed[at] <= 0x7E:
                at += 1
            at += 1
        else:
            yield "back"
            at += 1
