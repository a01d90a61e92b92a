"""What every test needs: a process that knows nothing of the store of the person who runs it.

And for those that ask: a real PostgreSQL server, one per process of the test run, started when the
first test asks for it and removed at the end.
"""

from collections.abc import Iterator

import pytest

from tests.postgres.server import Server


@pytest.fixture(autouse=True)
def _no_store_from_outside(monkeypatch):
    """A test says where its runs are kept; one from the environment would mix them up."""
    monkeypatch.delenv("HOLDFAST_URL", raising=False)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The server that tests share. A test that stops it or changes it needs one of its own."""
    with Server() as server:
        yield server


@pytest.fixture
def postgres_database(postgres_server: Server) -> Iterator[str]:
    """The name of an empty database of the shared server."""
    name = postgres_server.borrow()
    yield name
    postgres_server.give_back(name)


@pytest.fixture
def postgres_url(postgres_server: Server, postgres_database: str) -> str:
    """The URL of an empty database."""
    return postgres_server.url(postgres_database)
