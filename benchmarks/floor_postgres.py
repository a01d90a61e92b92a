"""The floor on PostgreSQL: the fewest statements that keep a step durable, through psycopg.

psycopg prepares a statement by itself when it has seen it five times. A connection in autocommit
mode commits each statement in one round trip. A step of Holdfast is an insert and a guarded update
of its run in one transaction; the floor is the insert alone.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING

import psycopg

from benchmarks.worker import Executions, Marks, Numbers, Stopwatch, serve
from benchmarks.workloads import PAYLOAD_BYTES, Request, as_json, message

if TYPE_CHECKING:
    from collections.abc import Callable

ROW = bytes(PAYLOAD_BYTES)
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
    """Each run is a thread that waits for its commit; one more thread commits."""
    handed: SimpleQueue[tuple[Row, Lock] | None] = SimpleQueue()

    def run(number: int) -> None:
        committed = Lock()
        committed.acquire()
        for step in range(steps):
            handed.put(((number, step, ROW), committed))
            committed.acquire()

    def commit() -> None:
        while (first := handed.get()) is not None:
            batch = [first]
            with suppress(Empty):
                while (another := handed.get_nowait()) is not None:
                    batch.append(another)
            insert_together(connection, [row for row, _ in batch])
            for _, committed in batch:
                committed.release()

    committer = Thread(target=commit)
    committer.start()
    with ThreadPoolExecutor(max_workers=runs) as pool:
        list(pool.map(run, range(runs)))
    handed.put(None)
    committer.join()


async def hand_over_in_tasks(connection: Connection, runs: int, steps: int) -> None:
    """Each run is a task; what they handed over commits when all of them wait."""
    loop = asyncio.get_running_loop()
    handed: list[tuple[Row, asyncio.Future[None]]] = []

    def commit() -> None:
        batch = handed.copy()
        handed.clear()
        insert_together(connection, [row for row, _ in batch])
        for _, committed in batch:
            committed.set_result(None)

    async def run(number: int) -> None:
        for step in range(steps):
            if not handed:
                loop.call_soon(commit)
            committed = loop.create_future()
            handed.append(((number, step, ROW), committed))
            await committed

    await asyncio.gather(*map(run, range(runs)))


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
            "w2/async": lambda request: many_runs(
                request, lambda *sizes: asyncio.run(hand_over_in_tasks(*sizes))
            ),
            "w3/new": conversation,
            "w4": killed,
        }
    )
