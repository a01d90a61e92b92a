"""tmux for tests; and `python -m tests.terminal.tmux`, which gets it.

A terminal that somebody really works in, of 80 x 24, driven and looked at from outside. As root it is
installed; anybody else is told what to do.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

PATIENCE_S = 60.0
LOOK_S = 0.05
HELP = (
    "make test-terminal needs tmux and less. As root they are installed from Debian by themselves; "
    "else: apt-get install tmux less"
)
TOOLS = ("tmux", "less")


class Tmux:
    """One window of a tmux server of its own."""

    def __init__(self, name: str, folder: Path, env: dict[str, str] | None = None) -> None:
        self._name = name
        self._folder = folder
        self._env = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", **(env or {})}

    def __enter__(self) -> Self:
        kept = [f"{name}={value}" for name, value in {**self._env, "PS1": "ready> "}.items()]
        self._tmux(
            *("new-session", "-d", "-x", "80", "-y", "24", "-c", str(self._folder)),
            shlex.join(["env", *kept, "bash", "--norc", "--noprofile"]),
        )
        self.until("ready>")
        return self

    def __exit__(self, *exc: object) -> None:
        self._tmux("kill-server")

    def run(self, *words: str) -> None:
        """Type a command, and Enter."""
        self._tmux("send-keys", "-l", shlex.join(words))
        self.press("Enter")

    def press(self, *keys: str) -> None:
        self._tmux("send-keys", *keys)

    def resize(self, columns: int, rows: int) -> None:
        self._tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def seen(self) -> list[str]:
        """Return what is on the screen."""
        return self._tmux("capture-pane", "-p").rstrip("\n").split("\n")

    def until(self, wanted: str | Callable[[list[str]], bool]) -> list[str]:
        """Wait until something is seen; returns the lines of the screen."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            lines = self.seen()
            if wanted in "\n".join(lines) if isinstance(wanted, str) else wanted(lines):
                return lines
            assert time.monotonic() < deadline, f"not seen: {wanted}\n" + "\n".join(lines)
            time.sleep(LOOK_S)

    def keep(self, name: str) -> None:
        """Keep a capture, if HOLDFAST_CAPTURES says where, to be looked at by people."""
        folder = os.environ.get("HOLDFAST_CAPTURES")
        if folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{name}.txt").write_text("\n".join(self.seen()) + "\n")

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-L", self._name, "-f", "/dev/null", *words]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def install() -> bool:
    """Install what is missing, if we may; say whether it is there now."""
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if missing and os.geteuid() == 0 and shutil.which("apt-get") is not None:
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        get = ["apt-get", "install", "--yes", "--quiet", "--no-install-recommends", *missing]
        if subprocess.run(get, env=environment, check=False).returncode != 0:
            # The lists of packages may be old, or never have been read.
            subprocess.run(["apt-get", "update", "--quiet"], env=environment, check=False)
            subprocess.run(get, env=environment, check=False)
    return all(shutil.which(tool) for tool in TOOLS)


if __name__ == "__main__":
    if not install():
        sys.exit(HELP)
