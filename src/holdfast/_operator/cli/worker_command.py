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
from holdfast._stores.addresses import shown
from holdfast.errors import StoreError, UsageError

if TYPE_CHECKING:
    from holdfast._operator.web.access_tokens import Tokens
    from holdfast._operator.web.metrics_server import MetricsServer


def add_to(group: click.Group) -> None:
    """Add this command to the group."""
    command(group, "worker")(_worker)


@click.argument("modules", metavar="MODULE…", nargs=-1, required=True)
@click.option("--queue", "queues", metavar="NAME", multiple=True, help="Only of this queue; again.")
@click.option(
    "--concurrency",
    type=click.IntRange(1, 10_000),
    default=50,
    show_default=True,
    help="Runs at work at one time, in each process.",
)
@click.option("--processes", type=click.IntRange(1, 256), default=1, show_default=True)
@click.option(
    "--drain",
    "drain_s",
    type=DurationType(),
    default="20s",
    show_default=True,
    help="How long runs at work may take to end when the worker receives SIGTERM.",
)
@click.option(
    "--lease",
    "lease_s",
    type=DurationType(1),
    default="30s",
    show_default=True,
    help="How long nobody else takes its runs after it was last heard of.",
)
@click.option(
    "--health", metavar="HOST:PORT", help="Answer GET /live and GET /ready there, with 200 or 503."
)
@click.option("--name", help="What the fleet calls it. Default: host and process id.")
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
    """Execute runs of the flows in these modules, until told to end.

    MODULE is a name as you would import it from this folder, or a file: agent, agent.py. Runs that are
    submitted, that are due, or whose process died are taken and executed. A process of the worker
    that dies is replaced, and harms only its own runs. SIGTERM or Ctrl-C: nothing more is taken,
    what is at work may end, the rest is given back; a second one ends at once.

    Without --url and HOLDFAST_URL it works on the store that the modules open, if they open one.
    """
    session.follow(modules)
    if session.url.startswith("memory:"):
        raise UsageError("a worker needs a store that other processes can reach, not memory:")
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
    """Return the processes, with a panel on the terminal that shows what they do."""
    from holdfast._operator.cli.worker_panel import Panel

    opens = functools.partial(session.store, create=True)
    panel = stack.enter_context(Panel(opens, shown(session.url), session.out))
    panel.say(f"flows of {', '.join(orders[0].modules)}; Ctrl-C drains")
    return WorkerPool(orders, panel.say, captures=True, on_tick=panel.draw)


def _unwatched(session: Session, orders: list[Order], _stack: contextlib.ExitStack) -> WorkerPool:
    """Return the processes, which say what they do in lines."""
    session.close()  # It is there, and its processes have their own ways to it.
    logs_json = orders[0].wanted.logs_json
    say = worker_telemetry.say_json if logs_json else functools.partial(_say, session)
    number = count(len(orders), "process", "processes")
    say(f"holdfast worker {os.getpid()}: {number}, {shown(session.url)}")
    return WorkerPool(orders, say)


def _serve(
    session: Session,
    wanted: worker_telemetry.TelemetryOptions,
    health: str | None,
    pool: WorkerPool,
    stack: contextlib.ExitStack,
) -> None:
    """Answer those who ask how the worker is and what it counts, and say where."""
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
    """Say at once what is wrong with the store; one that cannot be reached is waited for, by the
    processes, which say so."""
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
    """Return what serves the figures of all processes."""
    from holdfast._operator.web.metrics_server import MetricsServer

    return MetricsServer(
        wanted.place(), lambda: text_of(_families(pool)), _KnownTokens(session).get
    )


class _KnownTokens:
    """The tokens of the worker's store; looked for again while it cannot be reached."""

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
    """Yield what the processes count, and how they stand."""
    yield from pool.sums.families()
    processes = pool.processes
    yield _figure(
        "processes", "gauge", "Processes of this worker", sum(bool(p.pid) for p in processes)
    )
    yield _figure("restarts", "counter", "Processes that died and were replaced", pool.restarts)
    yield _figure("ready", "gauge", "1 if every process is connected and works", pool.ready())
    places = sum(process.order.concurrency for process in processes)
    yield _figure("places", "gauge", "Runs that may be at work at one time", places)
    busy = sum(process.standing.working for process in processes if process.pid)
    yield _figure("places_busy", "gauge", "Runs that are at work", busy)


def _figure(name: str, kind: str, text: str, value: float) -> Family:
    named = f"holdfast_worker_{name}"
    sample = f"{named}_total" if kind == "counter" else named
    return Family(named, kind, text, [(sample, {}, float(value))])
