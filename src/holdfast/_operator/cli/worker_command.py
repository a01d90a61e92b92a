"""The command `worker`: execute runs that are due, in supervised processes, until stopped."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from holdfast._engine.text import count
from holdfast._operator.cli import worker_telemetry
from holdfast._operator.cli.session import DurationType, Session, command
from holdfast._operator.cli.worker_pool import WorkerPool
from holdfast._operator.cli.worker_process import Order
from holdfast._operator.cli.worker_telemetry import TelemetryOptions
from holdfast._operator.read.metrics_merge import Family, text_of
from holdfast._operator.web.metrics_server import Health
from holdfast._stores.addresses import without_password
from holdfast.errors import StoreError, UsageError

if TYPE_CHECKING:
    from holdfast._operator.web.access_tokens import Tokens
    from holdfast._operator.web.metrics_server import MetricsServer


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "worker")(_worker)


@click.argument("modules", metavar="MODULE…", nargs=-1, required=True)
@click.option(
    "--queue", "queues", metavar="NAME", multiple=True, help="Only runs of this queue; repeatable."
)
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="How many runs each process executes at the same time.",
)
@click.option("--processes", type=click.IntRange(1, 256), default=1, show_default=True)
@click.option(
    "--drain",
    "drain_s",
    type=DurationType(),
    default="20s",
    show_default=True,
    help="How long running runs may take to end after SIGTERM.",
)
@click.option(
    "--lease",
    "lease_s",
    type=DurationType(1),
    default="30s",
    show_default=True,
    help="How long after its last heartbeat no other worker takes its runs.",
)
@click.option(
    "--health", metavar="HOST:PORT", help="Serve GET /live and GET /ready there (200 or 503)."
)
@click.option("--name", help="The name of the worker. Default: host and process id.")
@worker_telemetry.options
def _worker(
    session: Session,
    modules: tuple[str, ...],
    queues: tuple[str, ...],
    concurrency: int,
    processes: int,
    drain_s: float,
    lease_s: float,
    health: str | None,
    name: str | None,
    **asked: Any,
) -> int:
    """Execute runs of the flows in these modules until stopped.

    MODULE is a name that you can import from this folder, or a file: agent, agent.py. The worker
    executes runs that are submitted or due, and runs whose process died. It replaces a process that
    dies; only that process's runs are affected. After SIGTERM or Ctrl-C it takes no more runs, lets
    running ones end within the drain time, and releases the others. A second signal stops it at
    once.

    Without --url and HOLDFAST_URL, the worker uses the store that the modules open, if any.
    """
    session.follow(modules)
    if session.url.startswith("memory:"):
        raise UsageError("a worker needs a store that other processes can open; memory: is not one")
    wanted = msgspec.convert(asked, worker_telemetry.TelemetryOptions)
    wanted.check()
    _open(session)
    order = Order(
        modules=list(modules),
        url=session.url,
        namespace=session.namespace,
        queues=list(queues) or None,
        concurrency=concurrency,
        drain_s=drain_s,
        name=None,
        declares=True,
        report_fd=-1,
        life_fd=-1,
        lease_s=lease_s,
        wanted=wanted,
    )
    names = [_name(name, number, processes) for number in range(processes)]
    orders = [msgspec.structs.replace(order, name=one) for one in names]
    with contextlib.ExitStack() as stack:
        watched = session.out.is_terminal and not session.as_json and not wanted.logs_json
        gather = _watched if watched else _unwatched
        pool = gather(session, orders, stack)
        _serve(session, wanted, health, pool, stack)
        code = pool.work()
    if session.as_json:
        session.answer(exit_code=code)
    sys.stdout.flush()
    return code


def _watched(session: Session, orders: list[Order], stack: contextlib.ExitStack) -> WorkerPool:
    """Return the processes, with a panel on the terminal that shows their work."""
    from holdfast._operator.cli.worker_panel import Panel

    opens = functools.partial(session.store, create=True)
    panel = stack.enter_context(Panel(opens, without_password(session.url), session.out))
    panel.say(f"flows of {', '.join(orders[0].modules)}; Ctrl-C drains")
    return WorkerPool(orders, panel.say, captures=True, on_tick=panel.draw)


def _unwatched(session: Session, orders: list[Order], _stack: contextlib.ExitStack) -> WorkerPool:
    """Return the processes, which report in log lines."""
    session.close()  # The store exists, and each process opens its own handle.
    logs_json = orders[0].wanted.logs_json
    say = worker_telemetry.say_json if logs_json else functools.partial(_say, session)
    number = count(len(orders), "process", "processes")
    say(f"holdfast worker {os.getpid()}: {number}, {without_password(session.url)}")
    return WorkerPool(orders, say)


def _serve(
    session: Session,
    wanted: worker_telemetry.TelemetryOptions,
    health: str | None,
    pool: WorkerPool,
    stack: contextlib.ExitStack,
) -> None:
    """Serve the worker's health and metrics, and print the addresses."""
    note = worker_telemetry.say_json if wanted.logs_json else session.note
    if health is not None:
        checks = {"live": pool.live, "ready": pool.ready}
        served = stack.enter_context(Health(health, checks))
        note(f"health: http://{served.address}/live and /ready")
    if wanted.metrics is not None:
        served_at = stack.enter_context(metrics_server_of(wanted, pool, session))
        make = session.pasteable("tokens create NAME")
        note(f"metrics: {served_at.url}, with a token: {make}")


def _open(session: Session) -> None:
    """Report a problem of the store at once. If the store cannot be reached, the processes wait for
    it and report that."""
    try:
        session.store(create=True)
    except StoreError as error:
        if not error.unreachable:
            raise


def _say(session: Session, text: str) -> None:
    session.note(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}")


def _name(name: str | None, number: int, processes: int) -> str | None:
    if name is None:
        return None if processes == 1 else f"{socket.gethostname()}-{os.getpid()}.{number + 1}"
    return name if processes == 1 else f"{name}.{number + 1}"


# -- metrics of all processes -------------------------------------------------------------------


def metrics_server_of(
    wanted: TelemetryOptions, pool: WorkerPool, session: Session
) -> MetricsServer:
    """Return the server for the metrics of all processes."""
    from holdfast._operator.web.metrics_server import MetricsServer

    return MetricsServer(
        wanted.place(), lambda: text_of(_families(pool)), _KnownTokens(session).get
    )


class _KnownTokens:
    """The tokens of the worker's store; opens the store again while it cannot be reached."""

    def __init__(self, session: Session) -> None:
        self._url, self._namespace = session.url, session.namespace
        self._known: Tokens | None = None
        self._lock = threading.Lock()

    def get(self) -> Tokens:
        with self._lock:
            if self._known is None:
                from holdfast._operator.cli.session import open_store
                from holdfast._operator.web.access_tokens import Tokens

                store = open_store(self._url, self._namespace, create=False)
                try:
                    self._known = Tokens.of(store)
                finally:
                    store.close()
            return self._known


def _families(pool: WorkerPool) -> Iterator[Family]:
    """Yield the metrics of the processes and their state."""
    yield from pool.sums.families()
    processes = pool.processes
    yield _figure(
        "processes", "gauge", "Processes of this worker", sum(bool(p.pid) for p in processes)
    )
    yield _figure("restarts", "counter", "Processes that died and were replaced", pool.restarts)
    yield _figure("ready", "gauge", "1 if every process is connected and works", pool.ready())
    places = sum(process.order.concurrency for process in processes)
    yield _figure("places", "gauge", "Runs that may execute at the same time", places)
    busy = sum(process.standing.working for process in processes if process.pid)
    yield _figure("places_busy", "gauge", "Runs that are executing", busy)


def _figure(name: str, kind: str, text: str, value: float) -> Family:
    named = f"holdfast_worker_{name}"
    sample = f"{named}_total" if kind == "counter" else named
    return Family(named, kind, text, [(sample, {}, float(value))])
