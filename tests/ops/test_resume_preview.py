"""`resume --dry-run`: what it says that a resume would do, and why it would be refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast._operator.cli.main import main
from tests.ops.journals import Journal

Cli = Callable[..., Result]


@pytest.fixture
def holdfast(url: str) -> Cli:
    def invoke(*words: str) -> Result:
        runner = CliRunner(env={"COLUMNS": "200"})
        return runner.invoke(main, ["--url", url, *words], catch_exceptions=False)

    return invoke


def preview(holdfast: Cli, run_id: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(holdfast("resume", run_id, "--dry-run", "--json").stdout)
    return told["preview"]


def test_a_failed_run_names_its_next_generation_and_what_it_executes_again(holdfast, sqlite):
    Journal(sqlite, "r").step("search").failing("think", 3).step("apologise").failed("think")
    said = holdfast("resume", "r", "--dry-run")
    assert said.exit_code == 0
    assert "Executed again in generation 2:\n  - think\n  - apologise\n" in said.stdout
    told = preview(holdfast, "r")
    assert (told["generation"], told["superseded"]) == (2, ["think", "apologise"])
    assert told["refused"] == ""
    holdfast("resume", "r")
    assert sqlite.get("r").generation == 2
    told = preview(holdfast, "r")
    assert (told["generation"], told["superseded"]) == (None, [])


def test_a_run_that_failed_in_its_own_code_begins_a_generation(holdfast, sqlite):
    Journal(sqlite, "r").step("search").failed(error=("KeyError", "'title'"))
    assert "A resume begins generation 2.\n" in holdfast("resume", "r", "--dry-run").stdout


def test_what_a_resume_would_refuse_is_said(holdfast, sqlite):
    Journal(sqlite, "done").step("search").completed()
    Journal(sqlite, "stopped").held("paused")
    assert holdfast("cancel", "stopped").exit_code == 0
    journal = Journal(sqlite, "unknown").intent("charge", {"n": 1}, on_doubt="fail")
    journal.doubt("charge", "timeout").failing("charge", unknown=True).failed("charge")
    for run_id, why in (
        ("done", "is completed: that is final"),
        ("stopped", "was cancelled"),
        ("unknown", "would execute charge once more"),
    ):
        refused = preview(holdfast, run_id)["refused"]
        assert why in refused
        said = holdfast("resume", run_id, "--dry-run")
        assert "A resume would be refused: " in said.stdout
        assert refused.splitlines()[0] in holdfast("resume", run_id).stderr


def test_many_together_have_no_dry_run(holdfast, sqlite):
    Journal(sqlite, "r").failed()
    said = holdfast("resume", "--failed", "--dry-run")
    assert said.exit_code == 2
    assert "--dry-run reports on one run" in said.stderr
