"""One process of `holdfast worker`: `python -m holdfast._operator.cli.worker_process FD`.

It imports the flows, works until it receives a signal, and reports its status through a pipe, one
JSON object per line. When its parent process is gone, it drains and ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._operator.cli.child_process import module_named, outlives, read_order
from holdfast._operator.cli.exit_codes import ERROR, OK, code_of
from holdfast._operator.cli.worker_telemetry import Telemetry, TelemetryOptions
from holdfast._operator.read.metrics_merge import Figures
from holdfast._runtime import registry
from holdfast.errors import HoldfastError, StoreError, StoreFailed, UsageError

if TYPE_CHECKING:
    from holdfast._api.opened_store import Store
    from holdfast._runtime.worker.worker import Worker

REPORT_S = 0.5
SHOWN_RUNS = 20
BACKOFF_S, BACKOFF_MAX_S = 0.2, 5.0
"""Pauses between two tries to open a store that cannot be reached."""
WRONG_CODE = (SyntaxError, ImportError, NameError, AttributeError, TypeError)
"""The errors that a module raises at every import; any other error may be temporary (a network, a
file)."""


class Order(msgspec.Struct):
    """The work of a process."""

    modules: list[str]
    url: str
    namespace: str
    queues: list[str] | None
    concurrency: int
    drain_s: float
    name: str | None
    declares: bool
    """Whether it writes the queue limits that its flows declare. A replacement of a dead process
    does not: it would revert later changes by an operator."""
    report_fd: int
    life_fd: int
    """A pipe whose other end only the parent process holds."""
    lease_s: float = 30.0
    wanted: TelemetryOptions = msgspec.field(default_factory=TelemetryOptions)
    """Logs, alerts and metrics."""


class AtWork(msgspec.Struct, frozen=True):
    """A running run."""

    run_id: str
    flow: str
    step: str | None
    since_us: int


class ProcessStatus(msgspec.Struct):
    """The status of a process."""

    name: str = ""
    ready: bool = False
    draining: bool = False
    working: int = 0
    taken: int = 0
    trouble: str | None = None
    """The error of the store, while it cannot be used."""
    silent_since: float | None = None
    """The Unix time since which the store cannot be used."""
    runs: list[AtWork] = []
    code: int | None = None
    """Set in the last report: the reason for its end."""
    message: str = ""
    hopeless: bool = False
    """Whether every other process would fail too, because the modules are wrong."""


def main(argv: list[str]) -> int:
    """Work until a signal."""
    order = msgspec.json.decode(read_order(argv), type=Order)
    sys.argv = [order.modules[0]]  # The user's module must not see our arguments.
    ending = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _ends(ending))
    threading.Thread(target=outlives, args=(order.life_fd, ending), daemon=True).start()
    reports = Reports(order.report_fd)
    imported = False
    try:
        for module in order.modules:
            module_named(module)
        imported = True
        _check_flows(order.modules)
        left = work(order, ending, reports)
    except HoldfastError as error:
        reports.last(code_of(error), str(error))
        return code_of(error)
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
        hopeless = not imported and isinstance(error, WRONG_CODE)
        reports.last(ERROR, f"{type(error).__name__}: {error}", hopeless=hopeless)
        return ERROR
    reports.last(OK, "")
    if left:
        # Endless calls would block the end of the interpreter.
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(OK)
    return OK


def _check_flows(modules: list[str]) -> None:
    """Refuse modules without flows, by name."""
    if not any(not flow.is_method for flow in registry.flows.values()):
        named = ", ".join(modules)
        raise UsageError(
            f"MODULE {named}: no flow is defined there; give a module, or a Python file, that has "
            "functions with @flow"
        )


def _ends(ending: threading.Event) -> Callable[[int, FrameType | None], None]:
    def on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        ending.set()

    return on_signal


def work(order: Order, ending: threading.Event, reports: Reports) -> int:
    """Work until a signal; return how many runs were left to the expiry of their lease."""
    from holdfast._operator.cli import default_store
    from holdfast._runtime.worker.worker import Worker

    default_store.warn(order.url, order.namespace)
    instruments = Telemetry(order.wanted)
    opened = opened_store(order, ending, reports)
    if opened is None:
        return 0
    with opened as store:
        if ending.is_set():  # Signalled while it started: take no runs.
            return 0
        worker = Worker(
            store._engine,  # pyright: ignore[reportPrivateUsage]
            queues=order.queues,
            concurrency=order.concurrency,
            drain_s=order.drain_s,
            name=order.name,
            declares=order.declares,
        )
        with worker:
            reports.send(status_of(worker))
            while not ending.wait(REPORT_S):
                reports.send(status_of(worker))
                reports.figures(instruments.news())
                trouble = worker.trouble
                if isinstance(trouble, StoreFailed) and not trouble.unreachable:
                    raise trouble  # This handle is dead; a new process opens another.
            reports.send(msgspec.structs.replace(status_of(worker), draining=True))
        reports.figures(instruments.news())
        instruments.close()
        return len(worker.places())


def opened_store(order: Order, ending: threading.Event, reports: Reports) -> Store | None:
    """Open the store, and wait while it cannot be reached; return None after a signal."""
    import holdfast
    from holdfast._runtime import log as logs

    pause_s = BACKOFF_S
    waiting = ProcessStatus(name=order.name or "")
    while True:
        try:
            # Do not replace the default: a module may have opened its own store.
            return holdfast.open(
                order.url, namespace=order.namespace, default=False, lease_s=order.lease_s
            )
        except StoreError as error:
            if not error.unreachable:
                raise
            if waiting.trouble is None:
                waiting.trouble, waiting.silent_since = str(error), time.time()
                logs.warning("the store cannot be reached; waiting for it: %s", error)
        reports.send(waiting)
        if ending.wait(pause_s):
            return None
        pause_s = min(BACKOFF_MAX_S, pause_s * 2)


def status_of(worker: Worker) -> ProcessStatus:
    """Return the status of a worker."""
    places, trouble = worker.places(), worker.trouble
    since = None
    if trouble is not None:  # Rounded to seconds, so that an unchanged status is not sent again.
        since = float(int(time.time() - worker.store_health.silent_s()))
    return ProcessStatus(
        name=worker.name,
        ready=trouble is None and not worker.draining,
        draining=worker.draining,
        working=len(places),
        taken=worker.taken,
        trouble=None if trouble is None else str(trouble),
        silent_since=since,
        runs=[
            AtWork(place.run_id, place.flow.name, place.lease.row.current_step, place.since_us)
            for place in places[:SHOWN_RUNS]
        ],
    )


class Reports:
    """The pipe to the parent process; an unchanged report is not sent again."""

    def __init__(self, report_fd: int) -> None:
        self._fd = report_fd
        self._last = ProcessStatus()

    def send(self, standing: ProcessStatus) -> None:
        """Send the status, if it has changed."""
        if standing != self._last:
            self._last = standing
            with contextlib.suppress(OSError):  # The parent is gone; this process will end.
                os.write(self._fd, msgspec.json.encode(standing) + b"\n")

    def figures(self, news: Figures | None) -> None:
        """Send the metrics, if they have changed."""
        if news is not None:
            with contextlib.suppress(OSError):
                os.write(self._fd, msgspec.json.encode(news) + b"\n")

    def last(self, code: int, message: str, *, hopeless: bool = False) -> None:
        """Send the last report."""
        ended: Any = msgspec.structs.replace(
            self._last, ready=False, draining=True, code=code, message=message, hopeless=hopeless
        )
        self.send(ended)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
