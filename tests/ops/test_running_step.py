"""What is executed at this moment is shown: the step, which try it is, and since when. A real worker
process says it with its pulse, on both stores."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import holdfast
from holdfast._operator.cli.main import main
from tests.ops import slow_flows
from tests.tidy.source import ROOT

PATIENCE_S = 60.0


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/runs.db"
    url: str = request.getfixturevalue("postgres_url")
    return url


@contextlib.contextmanager
def working(url: str, folder: Path) -> Iterator[None]:
    """A worker process with a short lease; killed with the block."""
    words = ["worker", "tests.ops.slow_flows", "--lease", "3", "--url", url]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "HOLDFAST_SLOW": str(folder)}
    with (folder / "worker.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast._operator.cli", *words],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def until(fact: Callable[[], Any]) -> Any:
    deadline_s = time.monotonic() + PATIENCE_S
    while not (found := fact()):
        assert time.monotonic() < deadline_s
        time.sleep(0.05)
    return found


def test_the_running_step_is_shown(place: str, tmp_path: Path):
    def said(*words: str) -> str:
        result = CliRunner(env={"COLUMNS": "200"}).invoke(main, ["--url", place, *words])
        assert result.exit_code == 0, result.output
        return result.output

    with holdfast.open(place, default=False) as store:
        slow_flows.slow.with_options(store=store).submit("r")
        with working(place, tmp_path):
            (step,) = until(lambda: store.get("r").running)
            assert (step.key, step.attempt) == ("slow-second", 2)
            view = store.get("r")
            assert view.created_at <= step.since <= dt.datetime.now(dt.UTC)
            (listed,) = json.loads(said("runs", "--json"))["runs"]
            assert (listed["running"]["key"], listed["running"]["attempt"]) == ("slow-second", 2)
            assert "slow-second, attempt 2 (" in said("runs")
            since = step.since.strftime("%Y-%m-%d %H:%M:%S UTC")
            assert f"running    slow-second, attempt 2, since {since}" in said("show", "r")
            explained = " ".join(said("explain", "r").split())
            assert "slow-second is being executed, attempt 2, since" in explained
            (tmp_path / "go").touch()
            until(lambda: store.get("r").status == "completed")
        assert store.get("r").running == []
        (listed,) = json.loads(said("runs", "--json"))["runs"]
        assert listed["running"] is None
        assert "running" not in said("show", "r")
