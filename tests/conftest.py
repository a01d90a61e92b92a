"""What every test needs: a process that knows nothing of the store of the person who runs it.

And for those that ask: a real PostgreSQL server, one per process of the test run, started when the
first test asks for it and removed at the end.

Files of tests are kept in memory where there is room: `kill -9` takes nothing from the kernel, and
what only a machine that goes down can take is tested by writes that were recorded. With TMPDIR set
they are kept there, and `make torture` keeps them on the disk.

Bytecode of what the checkout holds is kept, whatever the environment says: tests start more than a
thousand interpreters, and compiling the library is most of what each would do. Of modules that
tests write none is kept: one that is written again within a second could be taken for the old one.
"""

import compileall
import contextlib
import gc
import os
import re
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from holdfast._engine.values.class_registry import KNOWN
from tests import sweeps
from tests.postgres.server import Server

with contextlib.suppress(ImportError):  # Environments of integrations have no hypothesis.
    from hypothesis import HealthCheck, settings

    # How long a machine takes to make examples says nothing about what is tested.
    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")

IN_MEMORY = Path("/dev/shm")
ROOM_BYTES = 4 << 30
ROOT = Path(__file__).parents[1]
STARTED_FROM = ("src", "tests", "examples")
TEST_MODULES = re.compile(r"[/\\](test_[^/\\]*$|node_modules[/\\])")


def pytest_configure(config: pytest.Config) -> None:
    """Choose where temporary files are, before the first one is made; processes that tests start
    inherit it. Compile what they import. Restore the handler of SIGINT, which a shell ignores in background jobs: tests
    interrupt themselves and their children."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    if not hasattr(config, "workerinput"):
        for name in STARTED_FROM:
            compileall.compile_dir(ROOT / name, quiet=2, rx=TEST_MODULES)
    if "TMPDIR" in os.environ or not IN_MEMORY.is_dir() or not os.access(IN_MEMORY, os.W_OK):
        return
    if shutil.disk_usage(IN_MEMORY).free >= ROOM_BYTES:
        os.environ["TMPDIR"] = str(IN_MEMORY)
        tempfile.tempdir = None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the modules of tests as pytest compiles them; nothing that is imported later."""
    sys.dont_write_bytecode = False
    try:
        return (yield)
    finally:
        sys.dont_write_bytecode = True
        gc.freeze()  # Of what was collected nothing is looked at again, nor copied by a fork.


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave to `make sweeps` the tests that only it executes."""
    if sweeps.WHOLE:
        return
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    for item in items:
        whole = any(mark.kwargs.get("whole") for mark in item.iter_markers("sweep"))
        (left if whole else kept).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left)


@pytest.fixture(autouse=True, scope="module")
def _classes_of_a_module(request: pytest.FixtureRequest) -> Iterator[None]:
    """Forget the classes that the tests of a module made known while they ran: modules that run in
    one process may each have a `Chat`."""
    before = set(KNOWN._by_name)
    yield
    for name in set(KNOWN._by_name) - before:
        cls = KNOWN._by_name[name]
        if cls.__module__ == request.module.__name__:
            del KNOWN._by_name[name]
            for table in (KNOWN._names, KNOWN._shapes, KNOWN._upgrades):
                table.pop(cls, None)


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


@pytest.fixture
def postgres_store_url(postgres_server: Server) -> Iterator[str]:
    """The URL of a database with a store in which nothing has happened yet. For tests that do not
    touch the tables of the store themselves."""
    name = postgres_server.borrow_store()
    yield postgres_server.url(name)
    postgres_server.give_back_store(name)
