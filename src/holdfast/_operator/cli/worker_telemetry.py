"""Logs, alerts and metrics of the processes of a worker.

The options belong to `worker`. Its processes enable telemetry with the public observers, as user
code does; the parent process only serves their metrics.
"""

from __future__ import annotations

import logging
import shlex
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast._operator.cli.session import DurationType
from holdfast._operator.read.metrics_merge import Figures, collected, prometheus
from holdfast.errors import UsageError

if TYPE_CHECKING:
    from holdfast._operator.web.metrics_server import Place


class TelemetryOptions(msgspec.Struct):
    """The telemetry options of the command line; a part of each process's order."""

    log_format: str | None = None
    alerts: list[str] = []
    alert_timeout_s: float = 30.0
    metrics: str | None = None
    metrics_tls_cert: str | None = None
    metrics_tls_key: str | None = None
    metrics_origin: str | None = None
    otel: bool = False

    @property
    def logs_json(self) -> bool:
        """Whether log lines are JSON."""
        return self.log_format == "json"

    def place(self) -> Place:
        """Return the address of the metrics server."""
        from holdfast._operator.web.metrics_server import Place

        address = str(self.metrics)
        return Place(address, self.metrics_tls_cert, self.metrics_tls_key, self.metrics_origin)

    def check(self) -> None:
        """Refuse impossible options at once."""
        for command in self.alerts:
            try:
                program = shlex.split(command)[:1]
            except ValueError as error:
                raise UsageError(f"--alert {command}: {error}") from None
            if not program or shutil.which(program[0]) is None:
                raise UsageError(f"--alert {command}: command not found")
        if self.metrics is None:
            for name in ("tls_cert", "tls_key", "origin"):
                if getattr(self, f"metrics_{name}") is not None:
                    option = f"--metrics-{name.replace('_', '-')}"
                    raise UsageError(f"{option} requires --metrics HOST:PORT")
        else:
            prometheus()
            self.place().check()
        if self.otel:
            from holdfast.observers import opentelemetry

            opentelemetry.check_environment()


_OPTIONS = (
    click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        help="The format of log lines. Default: text, unless the modules configure logging.",
    ),
    click.option(
        "--alert",
        "alerts",
        metavar="COMMAND",
        multiple=True,
        help="A command to run, with JSON on its standard input, when a run needs a person; repeatable.",
    ),
    click.option(
        "--alert-timeout",
        "alert_timeout_s",
        type=DurationType(0.1, 60),
        default="30s",
        show_default=True,
        help="How long that command may take; then it is killed, and run again later.",
    ),
    click.option(
        "--metrics",
        metavar="HOST:PORT",
        help="Serve GET /metrics there; requests need a token of the store.",
    ),
    click.option(
        "--metrics-tls-cert", metavar="FILE", help="Serve TLS there, with this certificate chain."
    ),
    click.option("--metrics-tls-key", metavar="FILE", help="The private key of that certificate."),
    click.option(
        "--metrics-origin",
        metavar="ORIGIN",
        help="The address of the TLS proxy before it: https://NAME.",
    ),
    click.option(
        "--otel",
        is_flag=True,
        help="Send traces and metrics to the address in the OTEL_… variables of OpenTelemetry.",
    ),
)


def options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Add these options to a command; they arrive as keyword arguments of `TelemetryOptions`."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


class Telemetry:
    """The telemetry of this process."""

    def __init__(self, wanted: TelemetryOptions) -> None:
        _log(wanted)
        _alert(wanted)
        self._metrics: Any = None
        self._last: Figures | None = None
        if wanted.metrics is not None:
            from holdfast.observers import metrics

            self._metrics = metrics.observe()
        self._end_otel: Callable[[], None] | None = None
        if wanted.otel:
            from holdfast.observers import opentelemetry

            self._end_otel = opentelemetry.observe_from_environment()

    def close(self) -> None:
        """Send the remaining data."""
        if self._end_otel is not None:
            self._end_otel()

    def news(self) -> Figures | None:
        """Return the metrics of this process, if they have changed."""
        if self._metrics is None:
            return None
        figures = Figures(collected(self._metrics.registry))
        if figures == self._last:
            return None
        self._last = figures
        return figures


def _alert(wanted: TelemetryOptions) -> None:
    import holdfast

    if wanted.alerts:
        from holdfast.observers.alerts import Command

        for command in wanted.alerts:
            holdfast.observers.on_alert(Command(command, timeout_s=wanted.alert_timeout_s))


def _log(wanted: TelemetryOptions) -> None:
    """Show Holdfast's log lines. The logging configuration of the user's modules stays, unless a
    format was given."""
    has_own = logging.getLogger().handlers or logging.getLogger("holdfast").handlers
    if has_own and wanted.log_format is None:
        return
    from holdfast.observers.logging import RunFilter

    handler = logging.StreamHandler()
    handler.addFilter(RunFilter())
    handler.setFormatter(_formatter(wanted))
    logging.basicConfig(handlers=[handler], force=True)
    logging.getLogger("holdfast").setLevel(logging.INFO)


def _formatter(wanted: TelemetryOptions) -> logging.Formatter:
    from holdfast.observers.logging import JsonFormatter, LineFormatter

    return JsonFormatter() if wanted.logs_json else LineFormatter()


# -- in the parent process ---------------------------------------------------------------------


def say_json(text: str) -> None:
    """Print a line of the parent process as a JSON log line."""
    from holdfast.observers.logging import JsonFormatter

    level = logging.WARNING if text.startswith("!") else logging.INFO
    record = logging.LogRecord("holdfast.worker", level, "", 0, "%s", (text,), None)
    sys.stderr.write(JsonFormatter().format(record) + "\n")
    sys.stderr.flush()
