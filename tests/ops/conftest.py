from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast._operator.cli import session
from holdfast._stores.contract import Store
from holdfast._stores.sqlite.sqlite_store import SqliteStore
from tests.model.memory_store import MemoryStore
from tests.tidy.source import ROOT

NIGHT_US = 1_767_236_400_000_000  # 2026-01-01 03:00:00 UTC


class Clock:
    """A clock that stands still until it is told."""

    def __init__(self) -> None:
        self.us = NIGHT_US

    def __call__(self) -> int:
        return self.us

    def advance(self, seconds: float) -> None:
        self.us += int(seconds * 1e6)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: Clock) -> Iterator[Store]:
    kept: Store
    if request.param == "memory":
        kept = MemoryStore(clock=clock)
    else:
        kept = SqliteStore(str(tmp_path / "runs.db"), clock=clock)
    yield kept
    kept.close()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/runs.db"


@pytest.fixture
def sqlite(url: str) -> Iterator[Store]:
    """A store in a file, by the machine's clock, that other processes can open too."""
    kept = SqliteStore(url.removeprefix("sqlite:///"))
    yield kept
    kept.close()


@pytest.fixture
def in_a_process_that_dies(url: str) -> Callable[[str], None]:
    """Write a journal in another process, which then dies without giving anything back."""

    def write(code: str) -> None:
        script = (
            "import os\n"
            "from holdfast._stores.sqlite.sqlite_store import SqliteStore\n"
            "from tests.ops.journals import Journal\n"
            f"store = SqliteStore({url.removeprefix('sqlite:///')!r})\n"
            f"{code}\n"
            "os._exit(9)\n"
        )
        env = os.environ | {"PYTHONPATH": str(ROOT)}
        done = subprocess.run([sys.executable, "-c", script], env=env, check=False)
        assert done.returncode == 9

    return write


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands that are invoked here can ask: what they are given as input was typed."""
    monkeypatch.setattr(session, "at_a_terminal", lambda: True)
