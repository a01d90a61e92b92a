"""Row 37: the server crashes again and again while workers in processes of their own are at work."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.harness import payment_server
from tests.crash.payments import Client
from tests.postgres.fleet import Fleet
from tests.postgres.server import Server

RUNS = 40
WORKERS = 3
RESTARTS = 4


@pytest.fixture
def payments() -> Iterator[Client]:
    with payment_server() as client:
        yield client


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as server:
        yield server


def crash_under_load(
    server: Server, fleet: Fleet, *, runs: int, workers: int, restarts: int, seed: int
) -> list[str]:
    """Let workers work while the server goes down and comes up; returns the runs, all completed."""
    rng = random.Random(seed)
    names = fleet.submit(runs)
    fleet.start_workers(workers)
    for _ in range(restarts):
        done = len(fleet.acknowledged())
        # It goes down when something has been got done since it came up, at a moment of chance.
        deadline = time.monotonic() + 20
        while len(fleet.acknowledged()) < done + 5 and time.monotonic() < deadline:
            time.sleep(rng.uniform(0, 0.05))
        if rng.random() < 0.5:
            server.stop("immediate")
        else:
            server.kill()
        server.start()
    fleet.until_completed(names)
    fleet.stop_workers()
    return names


def test_row_37_the_server_crashes_under_load(
    server: Server, payments: Client, tmp_path: Path
) -> None:
    fleet = Fleet(tmp_path, env={"CRASH_PAYMENTS": payments.url}, elsewhere=server.database("runs"))
    try:
        names = crash_under_load(
            server, fleet, runs=RUNS, workers=WORKERS, restarts=RESTARTS, seed=1
        )
        assert fleet.violations(names, payments) == []
    finally:
        fleet.close()
