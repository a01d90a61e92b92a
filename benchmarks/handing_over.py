"""Runs that hand their rows over to one committer: what sharing a commit costs by itself.

The floors of W2 use it, each with its own way to commit many rows at once.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING

from benchmarks.workloads import PAYLOAD_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable

    Commit = Callable[[list[tuple[int, int, bytes]]], object]

ROW = bytes(PAYLOAD_BYTES)


def in_threads(commit: Commit, runs: int, steps: int) -> None:
    """Each run is a thread that waits for its commit; one more thread commits."""
    handed: SimpleQueue[tuple[tuple[int, int, bytes], Lock] | None] = SimpleQueue()

    def run(number: int) -> None:
        committed = Lock()
        committed.acquire()
        for step in range(steps):
            handed.put(((number, step, ROW), committed))
            committed.acquire()

    def commit_all() -> None:
        while (first := handed.get()) is not None:
            batch = [first]
            with suppress(Empty):
                while (another := handed.get_nowait()) is not None:
                    batch.append(another)
            commit([row for row, _ in batch])
            for _, committed in batch:
                committed.release()

    committer = Thread(target=commit_all)
    committer.start()
    with ThreadPoolExecutor(max_workers=runs) as pool:
        list(pool.map(run, range(runs)))
    handed.put(None)
    committer.join()


async def in_tasks(commit: Commit, runs: int, steps: int) -> None:
    """Each run is a task; what they handed over commits when all of them wait."""
    loop = asyncio.get_running_loop()
    handed: list[tuple[tuple[int, int, bytes], asyncio.Future[None]]] = []

    def commit_all() -> None:
        batch = handed.copy()
        handed.clear()
        commit([row for row, _ in batch])
        for _, committed in batch:
            committed.set_result(None)

    async def run(number: int) -> None:
        for step in range(steps):
            if not handed:
                loop.call_soon(commit_all)
            committed = loop.create_future()
            handed.append(((number, step, ROW), committed))
            await committed

    await asyncio.gather(*map(run, range(runs)))
