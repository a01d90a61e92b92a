from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast
from tests.crash.harness import World, payment_server
from tests.crash.payments import Client


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """The files of one test, and no process left over at its end."""
    world = World(tmp_path)
    if getattr(request, "param", "sqlite") == "postgresql":
        world.elsewhere = request.getfixturevalue("postgres_url")
    yield world
    world.close()


@pytest.fixture
def payments(world: World) -> Iterator[Client]:
    """A payment server in its own process, known to the scripts of this test's world."""
    with payment_server() as client:
        world.env["CRASH_PAYMENTS"] = client.url
        yield client


@pytest.fixture
def store(tmp_path: Path) -> Iterator[holdfast.types.Store]:
    """A SQLite store in this process, the default one for the time of the test."""
    with holdfast.open(f"sqlite:///{tmp_path}/here.db") as store:
        yield store
