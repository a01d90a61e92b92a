"""The fixtures of LangGraph's own tests, bound to Holdfast.

`test_upstream.py` puts this file in the place of the suite's `tests/conftest.py`. Of the tests it keeps
those that use a checkpointer or a store. The tests of langgraph-checkpoint have no such fixtures: they
make an `InMemoryStore` themselves, and get ours under this name.
"""

from __future__ import annotations

import functools
import inspect
import json
import os
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from langgraph.cache.memory import InMemoryCache

from holdfast.integrations.langgraph import HoldfastSaver, HoldfastStore

NO_DOCKER = True
BY_NAME = bool(os.environ.get("BIND_BY_NAME"))
OURS = {"sync_checkpointer", "async_checkpointer", "sync_store", "async_store"}
calls: Counter[str] = Counter()


def counted(kind: type) -> type:
    """Return a class whose public methods count how often they were called."""

    def wrap(name: str, method: Any) -> Any:
        @functools.wraps(method)  # LangGraph looks which arguments it has.
        def call(self: Any, *given: Any, **named: Any) -> Any:
            calls[f"{kind.__name__}.{name}"] += 1
            return method(self, *given, **named)

        return call

    names = [name for name in vars(kind) if name in COUNTED]
    return type(kind.__name__, (kind,), {name: wrap(name, vars(kind)[name]) for name in names})


COUNTED = ("get_tuple", "list", "put", "put_writes", "batch", "abatch")
Saver: Any = counted(HoldfastSaver)
Store: Any = counted(HoldfastStore)


if BY_NAME:
    from langgraph.store import memory as memory_stores

    class BoundStore(Store):
        def __init__(self, **given: Any) -> None:
            super().__init__("memory:", **given)

    memory_stores.InMemoryStore = BoundStore


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def deterministic_uuids(mocker: Any) -> Any:
    made = (UUID(f"00000000-0000-4000-8000-{i:012}", version=4) for i in range(10000))
    return mocker.patch("uuid.uuid4", side_effect=made)


@pytest.fixture(params=["sync", "async", "exit"])
def durability(request: Any) -> str:
    return str(request.param)


@pytest.fixture
def cache() -> Any:
    return InMemoryCache()


# Snapshots of the suite are kept under these names.
@pytest.fixture(params=["memory"])
def sync_checkpointer(tmp_path: Path) -> Iterator[Any]:
    with Saver(f"sqlite:///{tmp_path}/saver.db") as saver:
        yield saver


@pytest.fixture(params=["memory"])
async def async_checkpointer(tmp_path: Path) -> AsyncIterator[Any]:
    with Saver(f"sqlite:///{tmp_path}/saver.db") as saver:
        yield saver


@pytest.fixture(params=["in_memory"])
def sync_store(tmp_path: Path) -> Iterator[Any]:
    with Store(f"sqlite:///{tmp_path}/store.db") as store:
        yield store


@pytest.fixture(params=["in_memory"])
async def async_store(tmp_path: Path) -> AsyncIterator[Any]:
    with Store(f"sqlite:///{tmp_path}/store.db") as store:
        yield store


def pytest_collection_modifyitems(config: Any, items: list[Any]) -> None:
    """Keep the tests that use what is ours."""
    if BY_NAME:
        for item in items:
            if inspect.iscoroutinefunction(item.function):
                item.add_marker(pytest.mark.anyio)
                item.fixturenames.append("anyio_backend")
        return
    chosen = [item for item in items if OURS & set(item.fixturenames)]
    config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
    items[:] = chosen


def pytest_sessionfinish(session: Any) -> None:
    worker = os.environ.get("PYTEST_XDIST_WORKER", "main")
    Path(os.environ["CALLS"], f"{worker}.json").write_text(json.dumps(calls))
