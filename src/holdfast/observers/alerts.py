"""Send alerts by a command: `holdfast.observers.on_alert(Command("notify-somebody --urgent"))`.

The alert is one JSON object on the command's standard input. The command line is split as a shell
would, and no shell is started. On an exit code other than 0, or when the command is not done in
time, the alert is sent again later.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

from holdfast.errors import UsageError
from holdfast.observers import Alert

__all__ = ["Alert", "AlertNotSent", "Command"]

TOLD_BYTES = 300
TOLD_S = 1.0
"""How long to wait for the last output of a command if a process that it started still writes."""


class AlertNotSent(RuntimeError):
    """The command failed. The text has no argument of it, because an argument may be a secret."""


class Command:
    """Runs a command for each alert, with the alert as JSON on its standard input."""

    def __init__(self, command: str | Sequence[str], *, timeout_s: float = 30.0) -> None:
        try:
            self._argv = shlex.split(command) if isinstance(command, str) else list(command)
        except ValueError as error:
            raise UsageError(f"the alert command cannot be read: {error}") from None
        if not self._argv:
            raise UsageError("the alert command is empty")
        if not timeout_s > 0:
            raise UsageError(f"timeout_s={timeout_s!r}: positive seconds")
        self.timeout_s = timeout_s
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        """By the ID of the alert that it sends."""

    def __repr__(self) -> str:
        return f"<command {Path(self._argv[0]).name}>"

    @property
    def name(self) -> str:
        """Its identity among the commands of the whole fleet."""
        return f"command {shlex.join(self._argv)}"

    def __call__(self, alert: Alert) -> None:
        """Send one alert; raises AlertNotSent."""
        program = Path(self._argv[0]).name
        with tempfile.TemporaryFile() as given:
            given.write(alert.json() + b"\n")
            given.seek(0)
            try:
                process = subprocess.Popen(  # noqa: S603 - the operator's own command, and no shell
                    self._argv,
                    stdin=given,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    start_new_session=True,
                )
            except OSError as error:
                raise AlertNotSent(f"{program} cannot be started: {error.strerror}") from None
        said = _Tail(process)
        self._running[alert.id] = process
        try:
            code = self._ended(process, program)
        finally:
            self._running.pop(alert.id, None)
        if code != 0:
            raise AlertNotSent(f"{program} ended with exit code {code}{said.last_line()}")

    def stop(self, alert: Alert) -> None:
        """Kill the command that sends an alert, with everything that it started: its process
        ends."""
        process = self._running.get(alert.id)
        if process is not None:
            _kill(process)

    def _ended(self, process: subprocess.Popen[bytes], program: str) -> int:
        try:
            return process.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            raise AlertNotSent(f"{program} was not through in {self.timeout_s:g} s") from None
        finally:
            if process.poll() is None:
                _kill(process)
                process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:  # Otherwise its number may belong to another process by now.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


class _Tail:
    """The end of a command's standard error, whatever its length."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._kept = b""
        # A process that the command started may continue to write: the thread lives as long as that.
        self._thread = threading.Thread(target=self._read, name="holdfast-alert-said", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        said = self._process.stderr
        assert said is not None
        with said:
            while chunk := os.read(said.fileno(), 65_536):
                self._kept = (self._kept + chunk)[-TOLD_BYTES:]

    def last_line(self) -> str:
        self._thread.join(TOLD_S)
        lines = self._kept.decode("utf-8", "replace").strip().splitlines()
        return f": {lines[-1]}" if lines else ""
