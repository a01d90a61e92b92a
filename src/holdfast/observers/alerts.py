"""Alerts for people, sent by a command: `holdfast.alert(Command("notify-somebody --urgent"))`.

The alert is one JSON object on the command's standard input. What is not shell is safe from it: the
command line is split as a shell would, and no shell is started. An exit code other than 0, or a command
that is not through in time, means that it is tried again later.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from holdfast import Alert
from holdfast.errors import UsageError

__all__ = ["Alert", "AlertNotSent", "Command"]

TOLD_BYTES = 300


class AlertNotSent(RuntimeError):
    """The command did not do it. The text has no argument of it: one may be a secret."""


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

    def __repr__(self) -> str:
        return f"<command {Path(self._argv[0]).name}>"

    @property
    def name(self) -> str:
        """What tells it from other commands, in the whole fleet."""
        return f"command {shlex.join(self._argv)}"

    def __call__(self, alert: Alert) -> None:
        """Send one alert; raises AlertNotSent."""
        program = Path(self._argv[0]).name
        with tempfile.TemporaryFile() as said, tempfile.TemporaryFile() as given:
            given.write(alert.json() + b"\n")
            given.seek(0)
            try:
                process = subprocess.Popen(  # noqa: S603 - the operator's own command, and no shell
                    self._argv,
                    stdin=given,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    start_new_session=True,
                )
            except OSError as error:
                raise AlertNotSent(f"{program} cannot be started: {error.strerror}") from None
            code = self._ended(process, program)
            if code != 0:
                raise AlertNotSent(f"{program} ended with exit code {code}{_last(said.fileno())}")

    def _ended(self, process: subprocess.Popen[bytes], program: str) -> int:
        try:
            return process.wait(self.timeout_s)
        except subprocess.TimeoutExpired:
            raise AlertNotSent(f"{program} was not through in {self.timeout_s:g} s") from None
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)  # With all that it has started.
                process.wait()


def _last(said: int) -> str:
    """Return the last line that a command wrote to its standard error."""
    size = os.fstat(said).st_size
    tail = os.pread(said, TOLD_BYTES, max(0, size - TOLD_BYTES)).decode("utf-8", "replace")
    lines = tail.strip().splitlines()
    return f": {lines[-1]}" if lines else ""
