from __future__ import annotations

import uuid
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
    kind = getattr(request, "param", "sqlite")
    if kind == "postgresql":
        world.elsewhere = request.getfixturevalue("postgres_store_url")
    elif kind == "empty postgresql":  # For tests that make or change the schema themselves.
        world.elsewhere = request.getfixturevalue("postgres_url")
    yield world
    world.close()


@pytest.fixture(scope="session")
def payment_service() -> Iterator[Client]:
    """A payment server in its own process, which the tests of this process share."""
    with payment_server() as client:
        yield client


@pytest.fixture
def payments(world: World, payment_service: Client) -> Client:
    """Books of this test at the payment server, known to the scripts of its world."""
    client = payment_service.of(uuid.uuid4().hex)
    world.env["CRASH_PAYMENTS"] = client.url
    return client


@pytest.fixture
def store(tmp_path: Path) -> Iterator[holdfast.types.Store]:
    """A SQLite store in this process, the default one for the time of the test."""
    with holdfast.open(f"sqlite:///{tmp_path}/here.db") as store:
        yield store
