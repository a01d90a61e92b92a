"""`holdfast rollback`: the plan, the question, the decision; and that another process performs it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast._engine.journal.entries import Kind
from holdfast._features.rollback import operator as rollback_views
from holdfast._operator.act import run_rollback
from holdfast._operator.cli.main import main
from holdfast._operator.explain import status_report as explaining
from holdfast._stores.contract import Store
from holdfast.errors import RunHeld
from tests.ops.journals import Journal
from tests.ops.test_cli_run import Command


@pytest.fixture
def holdfast(url: str) -> Callable[..., Result]:
    def invoke(*words: str, said: str | None = None) -> Result:
        runner = CliRunner(env={"COLUMNS": "80"})
        return runner.invoke(main, ["--url", url, *words], input=said, catch_exceptions=False)

    return invoke


@pytest.fixture
def mailed(sqlite: Store) -> Store:
    Journal(sqlite, "r", flow="letters").effect("mail").completed("done")
    return sqlite


def status(store: Store) -> str:
    row = store.get("r")
    assert row is not None
    return str(row.status)


def as_json(result: Result) -> dict[str, Any]:
    return json.loads(result.stdout)


PLAN = """\
Rolling run r of flow letters back:
  1. mail has no undo, and stays as it is unless the code has one by now
"""


def test_back_to_a_step_says_that_the_run_is_held_then(sqlite, holdfast):
    Journal(sqlite, "r", flow="letters").effect("mail").effect("more").completed("done")
    told = holdfast("rollback", "r", "--to", "mail", "--dry-run").stdout
    assert "then the run is held (paused) until somebody resumes it: holdfast resume r" in told
    assert "held (paused)" not in holdfast("rollback", "r", "--dry-run").stdout


def test_the_plan_changes_nothing(mailed, holdfast):
    result = holdfast("rollback", "r", "--dry-run")
    assert (result.exit_code, result.stdout) == (0, PLAN)
    told = as_json(holdfast("rollback", "r", "--dry-run", "--json"))
    assert told["preview"]["confirm"] is True
    assert [it["fate"] for it in told["preview"]["effects"]] == ["stays"]
    assert status(mailed) == "completed"


def test_it_asks_before_anything_starts(mailed, holdfast, terminal):
    result = holdfast("rollback", "r", said="n\n")
    assert result.stdout == PLAN + "Nothing was changed.\n"
    assert "Some of it cannot be undone." in result.stderr
    assert status(mailed) == "completed"


def test_the_decision_is_recorded_and_the_way_on_is_said(mailed, holdfast, url):
    result = holdfast("rollback", "r", "--confirm", "--reason", "wrong list", "--actor", "kim")
    assert result.exit_code == 0
    assert "run 'r' is to be rolled back." in result.stdout
    assert f"holdfast --url {url} run MODULE:letters r" in result.stdout
    assert status(mailed) == "queued"
    explained = str(explaining.explain(mailed, "r"))
    assert "It is being rolled back. kim asked for it: wrong list." in explained
    again = as_json(holdfast("rollback", "r", "--confirm", "--json"))
    assert again["answer"]["did"] == "run 'r' is being rolled back already"


def _told(holdfast: Callable[..., Result]) -> tuple[set[bool], str]:
    """Return what both commands say as JSON, and what they say as text if that is the same."""
    [listed] = as_json(holdfast("runs", "--json"))["runs"]
    shown = as_json(holdfast("show", "r", "--json"))["run"]
    line = next(it for it in holdfast("show", "r").stdout.splitlines() if "status" in it)
    status = line.removeprefix("status").strip()
    assert status in holdfast("runs").stdout
    return {listed["rolling_back"], shown["rolling_back"]}, status


def test_lists_say_that_a_run_is_rolled_back(mailed, holdfast):
    assert _told(holdfast) == ({False}, "completed")
    holdfast("rollback", "r", "--confirm")
    assert _told(holdfast) == ({True}, "queued (to be rolled back)")
    journal = Journal.taken(mailed, "r")
    assert _told(holdfast) == ({True}, "running (being rolled back)")
    journal.intent("undo/mail")
    assert _told(holdfast) == ({True}, "running (being rolled back)")
    journal.held("in_doubt", "…", "undo/mail")
    assert _told(holdfast) == ({True}, "held: in_doubt (being rolled back)")


def test_a_run_that_was_rolled_back_to_a_step_is_so_no_longer(sqlite, holdfast):
    Journal(sqlite, "r", flow="letters").effect("mail").effect("more").completed("done")
    holdfast("rollback", "r", "--to", "mail", "--confirm")
    journal = Journal.taken(sqlite, "r")
    journal.write(journal.draft(Kind.RUN_RESUMED, rolled_back_to="mail", generation=2))
    journal.held("paused")
    assert _told(holdfast) == ({False}, "held: paused")


def test_a_request_on_its_way_to_a_live_process_is_shown(sqlite, holdfast):
    Journal(sqlite, "r", flow="letters").effect("mail")
    answer = run_rollback.rollback(sqlite, "r", actor="kim", confirm=True, wait_s=0)
    assert not answer.recorded
    asked = as_json(holdfast("show", "r", "--json"))["run"]["stopping"]
    assert (asked["what"], asked["actor"]) == ("rolled back", "kim")
    assert "to be rolled back, as kim asked" in holdfast("show", "r").stdout


@pytest.mark.parametrize("words", [("--json",), ("--yes",), ("--yes", "--json")])
def test_what_cannot_be_undone_is_confirmed_and_not_skipped(mailed, holdfast, words):
    refused = holdfast("rollback", "r", *words)
    assert refused.exit_code == 2
    told = as_json(refused)["error"]["message"] if "--json" in words else refused.stderr
    assert "mail has no undo" in told
    assert "rollback r --confirm" in told
    assert status(mailed) == "completed"


def test_what_can_be_undone_needs_a_yes(sqlite, holdfast):
    Journal(sqlite, "r", flow="letters").effect("mail", undo=True).completed("done")
    refused = holdfast("rollback", "r", "--confirm", "--json")
    assert refused.exit_code == 2
    assert "give --yes, or --dry-run" in as_json(refused)["error"]["message"]
    assert status(sqlite) == "completed"
    assert holdfast("rollback", "r", "--yes").exit_code == 0
    assert status(sqlite) == "queued"


def test_an_effect_that_was_executed_after_the_plan_is_not_left_unseen(
    sqlite, holdfast, monkeypatch
):
    journal = Journal(sqlite, "r", flow="letters").effect("mail", undo=True)
    plan = rollback_views.preview_rollback(sqlite, "r")
    journal.effect("parcel").completed("done")
    monkeypatch.setattr(rollback_views, "preview_rollback", lambda *_: plan)
    refused = holdfast("rollback", "r", "--yes")
    assert refused.exit_code == 2
    assert "parcel has no undo" in refused.stderr
    assert status(sqlite) == "completed"


def test_no_such_run_and_no_such_step(mailed, holdfast):
    assert holdfast("rollback", "nobody", "--yes").exit_code == 6
    assert holdfast("rollback", "r", "--to", "nowhere", "--yes").exit_code == 2


def test_a_run_that_was_moved_is_rolled_back_where_it_is(store):
    journal = Journal(store, "r").effect("mail")
    gone = {"url": "sqlite:///other.db", "namespace": "default", "actor": "kim"}
    held = journal.draft(Kind.RUN_HELD, reason="moved", detail="moved to other.db", moved_to=gone)
    journal.write(held, held_reason="moved")
    with pytest.raises(RunHeld, match="moved to other.db"):
        run_rollback.rollback(store, "r", actor="kim", confirm=True)


def test_in_real_processes(tmp_path):
    """Completed by one process, rolled back by a decision of another, performed by a third."""
    command = Command(tmp_path)
    agent = f"{__file__.rpartition('/')[0]}/agent.py:reservation"
    assert command("run", agent, "r", "--input", "[4]").returncode == 0
    assert "1. announce has no undo" in command("rollback", "r", "--dry-run").stdout
    assert command("rollback", "r", "--confirm", "--reason", "sold out").returncode == 0
    ended = command("run", agent, "r")
    assert (ended.returncode, "was rolled back: sold out" in ended.stderr) == (8, True)
    assert command.executed() == ["reserve", "announce", "release"]
    shown = command.json("show", "r")["run"]
    assert shown["status"] == "rolled_back"
    assert "undo/reserve" in [step["key"] for step in shown["steps"]]
    assert command.json("runs", "--status", "rolled_back")["runs"][0]["run_id"] == "r"
    assert "Undone, in this order: undo/reserve." in command("explain", "r").stdout
