"""`holdfast cancel` and `holdfast pause`: what is said, and the exit codes; families in lists and views."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from holdfast._engine.decisions.control import pause_write
from holdfast._engine.journal.changes import TakeMessage
from holdfast._engine.journal.entries import Kind
from holdfast._operator.act import cancellation
from holdfast._operator.cli.main import main
from holdfast._stores.contract import Committed, Store
from tests.ops.journals import Journal


@pytest.fixture
def holdfast(url: str) -> Callable[..., Result]:
    def invoke(*words: str) -> Result:
        runner = CliRunner(env={"COLUMNS": "100"})
        return runner.invoke(main, ["--url", url, *words], catch_exceptions=False)

    return invoke


def status(store: Store, run_id: str = "r") -> str:
    row = store.get(run_id)
    assert row is not None
    return str(row.status)


def as_json(result: Result) -> dict[str, Any]:
    return json.loads(result.stdout)


def test_a_run_that_nobody_has_is_cancelled(sqlite: Store, holdfast):
    Journal(sqlite, "r").step("search").released()
    result = holdfast("cancel", "r", "--reason", "enough", "--actor", "kim")
    assert (result.exit_code, result.stdout) == (0, "Run r is cancelled.\n")
    assert status(sqlite) == "cancelled"
    again = as_json(holdfast("cancel", "r", "--json"))
    assert (again["answer"]["outcome"], again["exit_code"]) == ("cancelled", 0)
    assert "cancelled by kim (enough)" in holdfast("explain", "r").stdout


def test_one_at_work_is_pending_and_that_is_no_success(sqlite: Store, holdfast, url):
    Journal(sqlite, "r").step("search")
    result = holdfast("cancel", "r", "--wait", "0")
    assert result.exit_code == 5
    assert "Not yet:" in result.stdout
    assert f"holdfast --url {url} explain r" in result.stdout
    assert status(sqlite) == "running"
    told = as_json(holdfast("pause", "r", "--wait", "0", "--json"))
    assert (told["answer"]["outcome"], told["exit_code"]) == ("pending", 5)


def test_a_doubt_is_settled_first(sqlite: Store, holdfast):
    Journal(sqlite, "r").held_in_doubt("charge")
    result = holdfast("cancel", "r", "--actor", "kim")
    assert result.exit_code == 3
    assert "charge may or may not have happened: settle it" in result.stdout
    assert "kim wants it cancelled" in holdfast("explain", "r").stdout
    settled = holdfast("settle", "r", "charge", "--not-done")
    assert "the run is cancelled, as kim had asked" in settled.stdout
    assert status(sqlite) == "cancelled"


def test_what_has_completed_is_not_changed(sqlite: Store, holdfast):
    Journal(sqlite, "r").step("search").completed("done")
    result = holdfast("cancel", "r")
    assert result.exit_code == 0
    assert "Nothing was changed: run r had ended before, it is completed already." in result.stdout
    assert holdfast("pause", "r").exit_code == 1


def test_a_pause_and_the_command_that_ends_it(sqlite: Store, holdfast, url):
    Journal(sqlite, "r").step("search").released()
    result = holdfast("pause", "r", "--reason", "lunch", "--actor", "kim")
    assert result.exit_code == 0
    assert result.stdout == f"Run r is paused.\n  holdfast --url {url} resume r\n"
    assert "is paused by kim: lunch" in holdfast("explain", "r").stdout
    again = holdfast("pause", "r")
    assert again.exit_code == 0
    assert again.stdout.startswith("Run r is paused; it is paused already.")
    assert "is paused by kim: lunch" in holdfast("explain", "r").stdout
    assert holdfast("resume", "r").exit_code == 0
    assert status(sqlite) == "queued"


@pytest.mark.parametrize(
    "words",
    [
        ("cancel", "nobody"),
        ("queues", "show", "nobody"),
        ("queues", "resume", "nobody"),
        ("schedules", "pause", "nobody"),
        ("schedules", "resume", "nobody"),
    ],
)
def test_what_is_not_there_is_not_found(sqlite: Store, holdfast, words):
    told = holdfast(*words, "--json")
    assert (told.exit_code, as_json(told)["exit_code"]) == (6, 6)
    assert "there is no" in as_json(told)["error"]["message"]


def test_a_family_in_lists_and_views(sqlite: Store, holdfast):
    Journal(sqlite, "r").child_called("write", "r::write")
    Journal(sqlite, "r::write", flow="write", parent="r").held_in_doubt("mail")
    Journal(sqlite, "other").step("search")
    missing = holdfast("runs", "--parent", "nope")
    assert (missing.exit_code, "no run 'nope'" in missing.stderr) == (6, True)
    listed = as_json(holdfast("runs", "--parent", "r", "--json"))
    assert [run["run_id"] for run in listed["runs"]] == ["r::write"]
    shown = holdfast("show", "r").stdout
    assert "CHILD" in shown
    assert "held: in_doubt" in shown
    assert "child of   r\n" in holdfast("show", "r::write").stdout
    told = as_json(holdfast("show", "r", "--json"))["run"]
    assert [child["run_id"] for child in told["children"]] == ["r::write"]
    explained = as_json(holdfast("explain", "r", "--json"))["explanation"]
    commands = [action["command"] for action in explained["actions"]]
    assert any("settle r::write mail --not-done" in each for each in commands)


def test_a_pause_says_that_children_go_on(sqlite: Store, holdfast):
    parent = Journal(sqlite, "r").child_called("write", "r::write")
    parent.write(parent.draft(Kind.RUN_RELEASED, why="test"))
    Journal(sqlite, "r::write", flow="write", parent="r").step("draft").released()
    said = holdfast("pause", "r").stdout
    assert "child runs go on; pause them by themselves: r::write" in said
    assert "cancelled" not in said
    assert status(sqlite, "r::write") == "queued"


def test_a_cancel_reaches_the_children(sqlite: Store, holdfast):
    parent = Journal(sqlite, "r").child_called("write", "r::write")
    parent.write(parent.draft(Kind.RUN_RELEASED, why="test"))
    Journal(sqlite, "r::write", flow="write", parent="r").step("draft").released()
    result = holdfast("cancel", "r")
    assert result.stdout == "Run r is cancelled.\n1 child cancelled with it, or told.\n"
    assert status(sqlite, "r::write") == "cancelled"


def test_what_was_asked_and_is_not_done_yet_is_shown(sqlite: Store, holdfast):
    Journal(sqlite, "r").step("search")
    assert holdfast("pause", "r", "--wait", "0", "--actor", "ana").exit_code == 5
    holdfast("cancel", "r", "--wait", "0", "--reason", "enough", "--actor", "kim")
    shown = holdfast("show", "r").stdout
    [line] = [line for line in shown.splitlines() if line.startswith("asked")]
    assert "to be cancelled, as kim asked" in line
    assert line.endswith(": enough")
    asked = as_json(holdfast("show", "r", "--json"))["run"]["stopping"]
    assert (asked["what"], asked["actor"], asked["reason"]) == ("cancelled", "kim", "enough")
    assert "It is to be cancelled, as kim asked" in holdfast("explain", "r").stdout.replace(
        "\n", " "
    )


def test_what_was_carried_out_is_asked_no_more(sqlite: Store, holdfast):
    Journal(sqlite, "r").step("search").released()
    holdfast("cancel", "r")
    assert as_json(holdfast("show", "r", "--json"))["run"]["stopping"] is None


def test_a_pause_that_the_owner_carries_out_while_the_actor_looks_is_told_as_a_pause(
    sqlite: Store, monkeypatch: pytest.MonkeyPatch
):
    journal = Journal(sqlite, "r").step("a")
    inbox = sqlite.inbox

    def owner_is_quicker(run_no: int, after: int = 0):
        for message in inbox(run_no):
            write = pause_write(journal.lease, None, "ana", "", sqlite.now_us())
            write.changes = [*write.changes, TakeMessage(message.message_id)]
            assert isinstance(sqlite.append([write])[0], Committed)
        return inbox(run_no, after)

    monkeypatch.setattr(sqlite, "inbox", owner_is_quicker)
    stopped = cancellation.pause(sqlite, "r", actor="ana")
    assert (stopped.outcome, stopped.status) == ("paused", "held")
    assert "resumed" not in stopped.detail


@pytest.mark.parametrize(
    "words",
    [
        ("resume", "done"),
        ("pause", "done"),
        ("signal", "done", "go"),
        ("answer", "done", "which", "1"),
        ("reject", "done", "which"),
        ("approve", "done", "pay", "--yes"),
    ],
    ids=lambda words: words[0],
)
def test_what_comes_after_the_end_is_one_error(holdfast, sqlite, words):
    Journal(sqlite, "done").step("search").completed()
    told = as_json(holdfast(*words, "--json"))
    assert (told["error"]["type"], told["exit_code"]) == ("RunEnded", 1)
    assert "run 'done' is completed: " in told["error"]["message"]
