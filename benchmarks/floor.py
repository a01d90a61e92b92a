"""The floor: what the disk and SQLite cost, with nothing of a library around them.

The same SQLite as Holdfast's (through apsw), WAL with `synchronous=FULL`,
and the fewest statements that keep a step durable: one insert and a commit.
"""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import apsw

from benchmarks import handing_over
from benchmarks.handing_over import ROW
from benchmarks.worker import Executions, Marks, Numbers, Stopwatch, serve
from benchmarks.workloads import Request, as_json, message

if TYPE_CHECKING:
    from collections.abc import Callable

INSERT = "INSERT INTO steps (run, number, body) VALUES (?, ?, ?)"


def connect(request: Request) -> apsw.Connection:
    connection = apsw.Connection(str(Path(request.directory) / "floor.db"))
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE IF NOT EXISTS steps (run INTEGER, number INTEGER, body BLOB)")
    return connection


def insert(connection: apsw.Connection, run: int, steps: int) -> None:
    """One commit per step: a statement outside a transaction is one."""
    for number in range(steps):
        connection.execute(INSERT, (run, number, ROW))


def one_run(request: Request) -> Numbers:
    connection = connect(request)
    insert(connection, 0, request.warm_up)
    watch = Stopwatch()
    insert(connection, 1, request.steps)
    return watch.numbers(request.steps)


def insert_together(connection: apsw.Connection, rows: list[tuple[int, int, bytes]]) -> None:
    """Many rows, one commit."""
    with connection:
        connection.executemany(INSERT, rows)


def insert_shared(connection: apsw.Connection, runs: int, steps: int) -> None:
    """One commit for the step that every run handed over at the same time."""
    for number in range(steps):
        insert_together(connection, [(run, number, ROW) for run in range(runs)])


def many_runs(request: Request, work: Callable[[apsw.Connection, int, int], object]) -> Numbers:
    connection = connect(request)
    insert(connection, 0, request.warm_up)
    watch = Stopwatch()
    work(connection, request.runs, request.steps)
    return watch.numbers(request.runs * request.steps)


def hand_over_in_threads(connection: apsw.Connection, runs: int, steps: int) -> None:
    handing_over.in_threads(partial(insert_together, connection), runs, steps)


def hand_over_in_tasks(connection: apsw.Connection, runs: int, steps: int) -> None:
    asyncio.run(handing_over.in_tasks(partial(insert_together, connection), runs, steps))


def conversation(request: Request) -> Numbers:
    connection = connect(request)
    if request.phase == "empty":
        return {}
    insert(connection, 0, request.warm_up)
    marks = Marks()
    for number in range(request.steps):
        connection.execute(INSERT, (1, number, as_json(message(number))))
        marks.mark()
    return marks.numbers(request.window)


def killed(request: Request) -> Numbers:
    """Resuming means reading back what was inserted, then going on."""
    connection = connect(request)
    log = Executions()
    log.open(request)
    recorded = connection.execute("SELECT run, number, body FROM steps").fetchall()
    for number in range(len(recorded), request.steps):
        log.executed(number)
        connection.execute(INSERT, (1, number, ROW))
    return {}


if __name__ == "__main__":
    serve(
        {
            "w1/steps": one_run,
            "w2/shared": lambda request: many_runs(request, insert_shared),
            "w2/threads": lambda request: many_runs(request, hand_over_in_threads),
            "w2/async": lambda request: many_runs(request, hand_over_in_tasks),
            "w3/new": conversation,
            "w4": killed,
        }
    )
