"""The floor on PostgreSQL: the fewest statements that keep a step durable, through psycopg.

psycopg prepares a statement by itself when it has seen it five times. A connection in autocommit
mode commits each statement in one round trip. A step of Holdfast is an insert and a guarded update
of its run in one transaction; the floor is the insert alone.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import psycopg

from benchmarks import handing_over
from benchmarks.handing_over import ROW
from benchmarks.worker import Executions, Marks, Numbers, Stopwatch, serve
from benchmarks.workloads import Request, as_json, message

if TYPE_CHECKING:
    from collections.abc import Callable

CONNECTIONS = 8
INSERT = "INSERT INTO steps (run, number, body) VALUES (%s, %s, %s)"
INSERT_MANY = (
    "INSERT INTO steps (run, number, body) "
    "SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bytea[])"
)

Connection = psycopg.Connection[tuple[object, ...]]
Row = tuple[int, int, bytes]


def connect(request: Request) -> Connection:
    connection = psycopg.connect(request.url, autocommit=True)
    connection.execute(
        "CREATE TABLE IF NOT EXISTS steps (run bigint, number bigint, body bytea STORAGE EXTERNAL)"
    )
    return connection


def insert(connection: Connection, run: int, steps: int) -> None:
    """One commit per step: a statement outside a transaction is one."""
    for number in range(steps):
        connection.execute(INSERT, (run, number, ROW))


def insert_together(connection: Connection, rows: list[Row]) -> None:
    """Many rows, one statement, one round trip, one commit."""
    connection.execute(INSERT_MANY, [list(column) for column in zip(*rows, strict=True)])


def one_run(request: Request) -> Numbers:
    connection = connect(request)
    insert(connection, 0, request.warm_up)
    watch = Stopwatch()
    insert(connection, 1, request.steps)
    return watch.numbers(request.steps)


def insert_shared(connection: Connection, runs: int, steps: int) -> None:
    """One commit for the step that every run handed over at the same time; an insert for each."""
    cursor = connection.cursor()
    for number in range(steps):
        with connection.transaction():
            cursor.executemany(INSERT, [(run, number, ROW) for run in range(runs)])


def insert_in_one(connection: Connection, runs: int, steps: int) -> None:
    """The same, with one insert for all of them."""
    for number in range(steps):
        insert_together(connection, [(run, number, ROW) for run in range(runs)])


def many_runs(request: Request, work: Callable[[Connection, int, int], object]) -> Numbers:
    connection = connect(request)
    insert(connection, 0, request.warm_up)
    watch = Stopwatch()
    work(connection, request.runs, request.steps)
    return watch.numbers(request.runs * request.steps)


def several_connections(request: Request) -> Numbers:
    """A commit per step, over eight connections at once, each in a thread of its own."""
    connections = [connect(request) for _ in range(CONNECTIONS)]
    for connection in connections:
        insert(connection, 0, request.warm_up)
    waiting: SimpleQueue[int] = SimpleQueue()
    for run in range(request.runs):
        waiting.put(run)

    def work(connection: Connection) -> None:
        with suppress(Empty):
            while True:
                insert(connection, waiting.get_nowait(), request.steps)

    watch = Stopwatch()
    with ThreadPoolExecutor(max_workers=CONNECTIONS) as pool:
        list(pool.map(work, connections))
    return watch.numbers(request.runs * request.steps)


def hand_over_in_threads(connection: Connection, runs: int, steps: int) -> None:
    handing_over.in_threads(partial(insert_together, connection), runs, steps)


def hand_over_in_tasks(connection: Connection, runs: int, steps: int) -> None:
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
            "w2/one-insert": lambda request: many_runs(request, insert_in_one),
            "w2/connections": several_connections,
            "w2/threads": lambda request: many_runs(request, hand_over_in_threads),
            "w2/async": lambda request: many_runs(request, hand_over_in_tasks),
            "w3/new": conversation,
            "w4": killed,
        }
    )
