"""A terminal for tests: a real pseudo terminal with a process on it, and what a person would see.

The process has it as its controlling terminal, so Ctrl-C and Ctrl-Z are signals as ever. Nothing
waits for time: `until` waits for something to be seen.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Sequence
from typing import Any, Self

import pyte

from tests.tidy.source import ROOT

PATIENCE_S = 60.0
_LAUNCH = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Terminal:
    """A process on a terminal of its own."""

    def __init__(
        self,
        words: Sequence[str],
        columns: int = 80,
        rows: int = 24,
        env: dict[str, str] | None = None,
        cwd: str | None = None,
    ) -> None:
        self.screen = pyte.Screen(columns, rows)
        self.raw = b""
        self._stream = pyte.ByteStream(self.screen)
        self._master, slave = pty.openpty()
        self._size(columns, rows)
        self.before = termios.tcgetattr(self._master)
        plain = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, *words],
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
            cwd=cwd,
            env={**plain, "TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **(env or {})},
        )
        os.close(slave)

    @classmethod
    def holdfast(cls, *words: str, **options: Any) -> Self:
        """Start one of our commands."""
        return cls([sys.executable, "-m", "holdfast._operator.cli", *words], **options)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)

    # -- seeing --------------------------------------------------------------------------------

    @property
    def lines(self) -> list[str]:
        """What is on the screen."""
        return [line.rstrip() for line in self.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines)

    def take(self, timeout_s: float = 0.05) -> bool:
        """Take in what was printed; False at the end."""
        ready, _, _ = select.select([self._master], [], [], timeout_s)
        if not ready:
            return self.process.poll() is None
        try:
            data = os.read(self._master, 65536)
        except OSError:  # Nobody has the other end any more.
            return False
        self.raw += data
        self._stream.feed(data)
        return bool(data)

    def until(self, seen: str | Callable[[], bool]) -> str:
        """Wait until something is seen; returns the whole screen."""
        deadline = time.monotonic() + PATIENCE_S
        while not (seen in self.text if isinstance(seen, str) else seen()):
            open = self.take()
            if not open or time.monotonic() > deadline:
                if seen in self.text if isinstance(seen, str) else seen():
                    break
                why = "" if open else f" (ended with {self.process.poll()})"
                raise AssertionError(f"not seen{why}: {seen}\n{self.text}")
        return self.text

    def ended(self) -> int:
        """Wait for the end of the process; returns its exit code."""
        deadline = time.monotonic() + PATIENCE_S
        while self.take() or self.process.poll() is None:
            assert time.monotonic() < deadline, f"still there:\n{self.text}"
        while self.take(0):
            pass
        return self.process.wait()

    # -- doing ---------------------------------------------------------------------------------

    def press(self, keys: str) -> None:
        os.write(self._master, keys.encode())

    def resize(self, columns: int, rows: int) -> None:
        self._size(columns, rows)
        self.screen.resize(rows, columns)
        os.killpg(self.process.pid, signal.SIGWINCH)

    def _size(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def is_as_before(self) -> bool:
        """Tell whether the terminal's settings are what they were."""
        return termios.tcgetattr(self._master)[:4] == self.before[:4]


DOWN, UP, ENTER, CTRL_C, CTRL_Z = "\x1b[B", "\x1b[A", "\r", "\x03", "\x1a"
