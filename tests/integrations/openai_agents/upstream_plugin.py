"""Binds the OpenAI Agents SDK's own tests to Holdfast; a plugin of pytest.

`test_upstream.py` loads it beside the suite's own fixtures. Each async test is a durable run, so that
all that it does with the runner is recorded; a call of the runner in a sync test is one by itself.
`SQLiteSession` is a `DurableSession`. Nothing of the suite is changed.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import agents
import agents.memory
import pytest
from agents.run import AgentRunner

import holdfast
from holdfast.integrations.openai_agents import (
    DurableSession,
    _hooks,
    _tool_calls,
    install_durable_runner,
)

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
FOLDER = Path(os.environ["CALLS"])
calls: Counter[str] = Counter()
numbers = itertools.count()


def counted(kind: type, name: str) -> None:
    """Count the calls of a method that are made inside a run."""
    method = getattr(kind, name)

    @functools.wraps(method)
    def call(*given: Any, **named: Any) -> Any:
        if holdfast.context.current_run() is not None:
            calls[f"{kind.__name__}.{name}"] += 1
        return method(*given, **named)

    setattr(kind, name, call)


def in_run(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an async function that is a run, unless it is called in one."""

    @functools.wraps(function)
    async def call(*given: Any, **named: Any) -> Any:
        if holdfast.context.current_run() is not None:
            return await function(*given, **named)
        async with holdfast.aio.run(f"{WORKER}-{next(numbers)}"):
            return await function(*given, **named)

    return call


class BoundSession:
    """A conversation of its own for each database, and for each object without one."""

    def __init__(
        self,
        session_id: str,
        db_path: str | Path = ":memory:",
        sessions_table: str = "agent_sessions",
        messages_table: str = "agent_messages",
        session_settings: Any = None,
    ) -> None:
        place = next(numbers) if str(db_path) == ":memory:" else db_path
        self._kept = DurableSession(
            f"{place} {sessions_table} {messages_table} {session_id}",
            session_settings=session_settings,
        )
        self.session_id = session_id
        self.session_settings = self._kept.session_settings

    def _conversation(self) -> DurableSession:
        self._kept.session_settings = self.session_settings  # Tests set them.
        return self._kept

    async def get_items(self, limit: int | None = None) -> Any:
        return await self._conversation().get_items(limit)

    async def add_items(self, items: Any) -> None:
        await self._conversation().add_items(items)

    async def pop_item(self) -> Any:
        return await self._conversation().pop_item()

    async def clear_session(self) -> None:
        await self._conversation().clear_session()

    def close(self) -> None:
        """The store is closed at the end."""


agents.SQLiteSession = BoundSession  # type: ignore[misc, assignment]
agents.memory.SQLiteSession = BoundSession  # type: ignore[misc, assignment]
for kind, name in (
    (_hooks.DurableModel, "get_response"),
    (_hooks.DurableModel, "stream_response"),
    (_tool_calls.Tools, "invoke"),
    (DurableSession, "add_items"),
    (DurableSession, "get_items"),
):
    counted(kind, name)
AgentRunner.run = in_run(AgentRunner.run)  # type: ignore[method-assign]
install_durable_runner()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Make a run of each async test."""
    for item in items:
        if isinstance(item, pytest.Function) and inspect.iscoroutinefunction(item.obj):
            item.obj = in_run(item.obj)


def pytest_sessionstart(session: pytest.Session) -> None:
    session.stash[STORE] = holdfast.open(f"sqlite:///{FOLDER}/{WORKER}.db")


def pytest_sessionfinish(session: pytest.Session) -> None:
    session.stash[STORE].close()
    (FOLDER / f"{WORKER}.json").write_text(json.dumps(calls))


STORE = pytest.StashKey[holdfast.types.Store]()
