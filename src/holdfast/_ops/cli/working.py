"""The command `worker`: execute what is due, in supervised processes, until told to end."""

from __future__ import annotations

import contextlib
import functools
import os
import socket
import sys
import time
from typing import Any

import click
import msgspec

from holdfast._ops.cli import instruments
from holdfast._ops.cli.session import Session, command
from holdfast._ops.cli.workforce import Workforce
from holdfast._ops.cli.workshop import Order
from holdfast._ops.health import Health
from holdfast._ops.text import count
from holdfast._store.addresses import shown
from holdfast.errors import StoreError, UsageError


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
    metavar="SECONDS",
    type=click.FloatRange(0),
    default=20.0,
    show_default=True,
    help="How long runs at work may take to end when the worker is told to.",
)
@click.option(
    "--lease",
    "lease_s",
    metavar="SECONDS",
    type=click.FloatRange(1),
    default=30.0,
    show_default=True,
    help="How long nobody else takes its runs after it was last heard of.",
)
@click.option(
    "--health", metavar="HOST:PORT", help="Answer GET /live and GET /ready there, with 200 or 503."
)
@click.option("--name", help="What the fleet calls it. Default: host and process id.")
@instruments.options
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
    """
    if session.url.startswith("memory:"):
        raise UsageError("a worker needs a store that other processes can reach, not memory:")
    wanted = msgspec.convert(asked, instruments.Wanted)
    wanted.check()
    _open(session)
    orders = [
        Order(
            modules=list(modules),
            url=session.url,
            namespace=session.namespace,
            queues=list(queues) or None,
            concurrency=concurrency,
            drain_s=drain_s,
            name=_name(name, number, processes),
            declares=True,
            report_fd=-1,
            life_fd=-1,
            lease_s=lease_s,
            wanted=wanted,
        )
        for number in range(processes)
    ]
    watched = session.out.is_terminal and not session.as_json and not wanted.logs_json
    note = instruments.say_json if wanted.logs_json else session.note
    with contextlib.ExitStack() as stack:
        if watched:
            from holdfast._ops.cli.panel import Panel

            opens = functools.partial(session.store, create=True)
            panel = stack.enter_context(Panel(opens, shown(session.url), session.out))
            workforce = Workforce(orders, panel.say, captures=True, on_tick=panel.draw)
            panel.say(f"flows of {', '.join(modules)}; Ctrl-C drains")
        else:
            session.close()  # It is there, and its processes have their own ways to it.
            say = instruments.say_json if wanted.logs_json else functools.partial(_say, session)
            workforce = Workforce(orders, say)
            say(
                f"holdfast worker {os.getpid()}: {count(processes, 'process', 'processes')}, "
                f"{shown(session.url)}"
            )
        if health is not None:
            checks = {"live": workforce.live, "ready": workforce.ready}
            served = stack.enter_context(Health(health, checks))
            note(f"health: http://{served.address}/live and /ready")
        if wanted.metrics is not None:
            served_at = stack.enter_context(instruments.scraping(wanted, workforce, session))
            make = session.pasteable("token create")
            note(f"metrics: {served_at.url}, with a token: {make}")
        code = workforce.work()
    if session.as_json:
        session.answer(exit_code=code)
    sys.stdout.flush()
    return code


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
