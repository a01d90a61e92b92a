"""The floor: what the disk and SQLite cost, with nothing of a library around them.

The same SQLite as Holdfast's (through apsw), WAL with `synchronous=FULL`,
and the fewest statements that keep a step durable: one insert and a commit.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING

import apsw

from benchmarks.worker import Executions, Marks, Numbers, Stopwatch, serve
from benchmarks.workloads import PAYLOAD_BYTES, Request, as_json, message

if TYPE_CHECKING:
    from collections.abc import Callable

ROW = bytes(PAYLOAD_BYTES)
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


def insert_shared(connection: apsw.Connection, runs: int, steps: int) -> None:
    """One commit for the step that every run handed over at the same time."""
    for number in range(steps):
        with connection:
            connection.executemany(INSERT, [(run, number, ROW) for run in range(runs)])


def many_runs(request: Request, work: Callable[[apsw.Connection, int, int], object]) -> Numbers:
    connection = connect(request)
    insert(connection, 0, request.warm_up)
    watch = Stopwatch()
    work(connection, request.runs, request.steps)
    return watch.numbers(request.runs * request.steps)


def hand_over_in_threads(connection: apsw.Connection, runs: int, steps: int) -> None:
    """Each run is a thread that waits for its commit; one more thread commits."""
    handed: SimpleQueue[tuple[tuple[int, int, bytes], Lock] | None] = SimpleQueue()

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
            with connection:
                connection.executemany(INSERT, [row for row, _ in batch])
            for _, committed in batch:
                committed.release()

    committer = Thread(target=commit)
    committer.start()
    with ThreadPoolExecutor(max_workers=runs) as pool:
        list(pool.map(run, range(runs)))
    handed.put(None)
    committer.join()


async def hand_over_in_tasks(connection: apsw.Connection, runs: int, steps: int) -> None:
    """Each run is a task; what they handed over commits when all of them wait."""
    loop = asyncio.get_running_loop()
    handed: list[tuple[tuple[int, int, bytes], asyncio.Future[None]]] = []

    def commit() -> None:
        batch = handed.copy()
        handed.clear()
        with connection:
            connection.executemany(INSERT, [row for row, _ in batch])
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
            "w2/threads": lambda request: many_runs(request, hand_over_in_threads),
            "w2/async": lambda request: many_runs(
                request, lambda *sizes: asyncio.run(hand_over_in_tasks(*sizes))
            ),
            "w3/new": conversation,
            "w4": killed,
        }
    )
