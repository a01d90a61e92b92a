"""The commands that look and decide: what they print, as text and as JSON, and how they end."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from holdfast import ask, flow, gather, open as opened
from holdfast._operator.cli import session
from holdfast._operator.cli.exit_codes import EXIT_CODES
from holdfast._operator.cli.main import main
from holdfast._operator.cli.session import Session
from holdfast._stores.contract import Query, Store
from holdfast.errors import Corrupt, Rejected
from tests.ops.journals import Journal

NASTY = "\x1b[2J\x1b]0;owned\x07\u202egnp.exe \x9b31m[bold]x[/bold]"


@pytest.fixture
def holdfast(url: str) -> Callable[..., Result]:
    def invoke(*words: str, env: dict[str, str] | None = None) -> Result:
        runner = CliRunner(env={"COLUMNS": "80", **(env or {})})
        return runner.invoke(main, ["--url", url, *words], catch_exceptions=False)

    return invoke


@pytest.fixture
def runs(sqlite: Store) -> Store:
    Journal(sqlite, "done", input={"topic": "x"}).step("search", ["a"]).completed({"ok": True})
    Journal(sqlite, "failed").step("search").failing("think", 2).failed("think")
    Journal(sqlite, "held").step("search").held_in_doubt("charge", args={"n": 1})
    Journal(sqlite, "diverged").effect("mail").held("diverged", "at think: …", "think")
    Journal(sqlite, "nasty", flow="pay", input={NASTY: NASTY}, tags={"k": NASTY}).failing(
        "think", error={"type": "ValueError", "message": NASTY}
    ).failed("think", error=("ValueError", NASTY))
    return sqlite


def as_json(result: Result) -> dict[str, Any]:
    data = json.loads(result.stdout)
    assert data["version"] == 1
    return data


# -- looking -----------------------------------------------------------------------------------


def test_no_store_says_how_to_start(holdfast, url):
    result = holdfast("runs")
    assert result.exit_code == 0
    assert "holdfast demo" in result.stdout
    assert as_json(holdfast("runs", "--json"))["runs"] == []
    missing = holdfast("show", "r")
    assert missing.exit_code == 1
    assert "`holdfast demo`" in missing.stderr, "it makes a store of its own"
    assert not Path(url.removeprefix("sqlite:///")).exists()


def test_an_empty_store_says_how_to_start(holdfast, sqlite):
    result = holdfast("runs")
    assert result.exit_code == 0
    assert f"holdfast --url sqlite:///{sqlite.path} run MODULE:FLOW RUN_ID" in result.stdout


def test_runs(holdfast, runs):
    result = holdfast("runs")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split() == ["RUN", "FLOW", "VERSION", "STATUS", "STEPS", "AT", "CHANGED"]
    assert [line.split()[0] for line in lines[1:]] == [
        "nasty",
        "diverged",
        "held",
        "failed",
        "done",
    ]
    assert "held: in_doubt" in lines[3]
    assert [
        run["run_id"] for run in as_json(holdfast("runs", "--json", "--limit", "2"))["runs"]
    ] == [
        "nasty",
        "diverged",
    ]
    assert len(as_json(holdfast("runs", "--json", "--status", "held"))["runs"]) == 2
    assert as_json(holdfast("--json", "runs", "--older-than", "2h"))["runs"] == []
    assert holdfast("runs", "--older-than", "soon").exit_code == 2
    assert holdfast("runs", "--tag", "x").exit_code == 2
    assert holdfast("runs", "--status", "sleeping").exit_code == 2


def test_runs_in_pages(holdfast, runs):
    pages: list[list[str]] = []
    after: list[str] = []
    while True:
        told = as_json(holdfast("runs", "--json", "--limit", "2", *after))
        pages.append([run["run_id"] for run in told["runs"]])
        if told["next"] is None:
            break
        after = ["--after", told["next"]]
    assert pages == [["nasty", "diverged"], ["held", "failed"], ["done"]]
    assert "More follow: --after " in holdfast("runs", "--limit", "4").stdout
    assert "More follow" not in holdfast("runs", "--limit", "5").stdout
    assert holdfast("runs", "--after", "x").exit_code == 2


def test_questions_in_pages(holdfast, url: str):
    @flow(name="cli-asks-many")
    def asks() -> str:
        return str(gather(*(partial(ask, "Well?", name=name, timeout="1h") for name in "abc")))

    with opened(url, default=False) as store, store.worker(flows=[asks]):
        asks.with_options(store=store).submit("r")
        store.wait("r", until=lambda _: len(store.questions()) == 3)
        first = as_json(holdfast("questions", "--json", "--limit", "2"))
        words = ["questions", "--after", first["next"]]
        last = as_json(holdfast(*words, "--json"))
        assert (len(first["questions"]), last["next"]) == (2, None)
        names = [it["name"] for it in (*first["questions"], *last["questions"])]
        assert sorted(names) == ["a", "b", "c"]
        assert "More follow: --after '" in holdfast("questions", "--limit", "2").stdout
        assert "More follow" not in holdfast(*words).stdout
        assert holdfast("questions", "--after", "x").exit_code == 2


def test_runs_by_version(holdfast, runs):
    Journal(runs, "newer", version="2").step("search")
    assert [
        run["run_id"] for run in as_json(holdfast("runs", "--json", "--version", "2"))["runs"]
    ] == ["newer"]
    older = as_json(holdfast("runs", "--json", "--version", "1", "--limit", "2"))["runs"]
    assert [(run["run_id"], run["version"]) for run in older] == [("nasty", "1"), ("diverged", "1")]
    assert "No matching runs" in holdfast("runs", "--version", "3").stdout
    line = next(line for line in holdfast("runs").stdout.splitlines() if "newer" in line)
    assert line.split()[:4] == ["newer", "pay", "2", "running"]
    assert "version    2" in holdfast("show", "newer").stdout
    assert as_json(holdfast("show", "newer", "--json"))["run"]["version"] == "2"


def test_a_table_in_a_pipe_has_one_line_per_row(url, sqlite):
    for at in range(3):
        Journal(sqlite, f"{at}-" + "long" * 60).step("search")
    result = CliRunner(env={"COLUMNS": None}).invoke(main, ["--url", url, "runs"])
    assert len(result.stdout.splitlines()) == 4


@pytest.mark.parametrize("words", ["pause mail", "set mail --concurrency 2", "resume mail"])
def test_an_action_on_a_queue_makes_no_store(tmp_path: Path, words: str) -> None:
    """The path may be misspelled: only what starts runs, or brings data, makes a store."""
    url = f"sqlite:///{tmp_path}/typo.db"
    result = CliRunner().invoke(main, ["queues", *words.split(), "--url", url])
    assert (result.exit_code, "there is no store at" in result.stderr) == (1, True)
    assert not list(tmp_path.iterdir())


def test_a_new_queue_is_said_to_be_new(holdfast, runs):
    typo = holdfast("queues", "pause", "mial")
    assert typo.exit_code == 0
    assert "Queue mial is new" in typo.stderr
    assert "default" in typo.stderr
    again = holdfast("queues", "resume", "mial")
    assert again.stderr == ""
    assert holdfast("queues", "pause", "default").stderr == ""


def test_a_row_that_cannot_be_read_is_told_in_words(holdfast, runs, url):
    raw = sqlite3.connect(url.removeprefix("sqlite:///"))
    with raw:
        raw.execute("UPDATE runs SET status = 'x' WHERE run_id = 'done'")
    raw.close()
    text = holdfast("runs", env={"COLUMNS": "200"}).stdout
    assert "'x' is no status of a run" in text
    assert "KeyError" not in text
    assert "days ago" not in text


def test_show(holdfast, runs):
    text = holdfast("show", "done").stdout
    assert '{"topic":"x"}' in text
    assert '{"ok":true}' in text
    run = as_json(holdfast("show", "done", "--json"))["run"]
    assert run["result"] == {"ok": True}
    assert run["steps"][0]["key"] == "search"
    assert run["created_at"].endswith("Z")
    assert "holdfast --url" in holdfast("show", "held").stdout


def test_history(holdfast, runs):
    entries = as_json(holdfast("history", "done", "--json"))["entries"]
    kinds = ["run_started", "run_claimed", "step_started", "step_completed", "run_completed"]
    assert [entry["kind"] for entry in entries] == kinds
    assert entries[3]["body"] == {"result": ["a"]}
    _, *lines = holdfast("history", "done").stdout.splitlines()  # The first is the date.
    assert [line.split()[2] for line in lines] == kinds
    some = as_json(holdfast("history", "done", "--json", "--step", "search", "--after", "3"))
    assert [entry["seq"] for entry in some["entries"]] == [4]
    assert "more: --after 2" in holdfast("history", "done", "--limit", "2").stdout
    assert holdfast("history", "done", "--step", "nope").exit_code == 2


def test_explain(holdfast, runs, url):
    text = holdfast("explain", "held").stdout
    assert f"holdfast --url {url} settle held charge --not-done" in text
    told = as_json(holdfast("explain", "held", "--json"))["explanation"]
    assert told["status"] == "held"
    assert told["actions"][1]["command"].endswith("settle held charge --not-done")


@pytest.mark.parametrize(("refused", "said"), [(None, '"yes", by kim'), ("too dear", "Rejected: ")])
def test_history_says_who_answered(holdfast, url: str, refused: str | None, said: str):
    @flow(name="cli-history-asks")
    def asks() -> str:
        try:
            return str(ask("Shall it be sent?", name="go", choices=["yes", "no"], timeout="1h"))
        except Rejected:
            return "refused"

    with opened(url, default=False) as store:
        asks.with_options(store=store).submit("asks")
        words = ["answer", "asks", "go", "yes"]
        if refused is not None:
            words = ["reject", "asks", "go", "--reason", refused]
        assert holdfast(*words, "--actor", "kim").exit_code == 0
        asks.with_options(store=store).run("asks")
    line = next(it for it in holdfast("history", "asks").stdout.splitlines() if "answered" in it)
    assert said in line
    assert line.count("kim") == 1


# -- deciding ----------------------------------------------------------------------------------


def test_settle(holdfast, runs):
    result = holdfast("settle", "held", "charge", "--done", '{"id": 1}', "--actor", "kim")
    assert result.exit_code == 0
    assert "settled as done" in result.stdout
    assert "run MODULE:pay held" in result.stdout
    history = as_json(holdfast("history", "held", "--json"))["entries"]
    assert history[-2]["body"]["actor"] == "kim"
    assert '{"id":1}, by kim' in holdfast("history", "held").stdout
    again = holdfast("settle", "held", "charge", "--not-done")
    assert again.exit_code == 2
    assert "already" in again.stderr


@pytest.mark.parametrize(
    "words",
    [(), ("--not-done", "--fail", "x"), ("--done", "not json"), ("--done", "1", "--not-done")],
)
def test_settle_asks_for_one_decision(holdfast, runs, words):
    assert holdfast("settle", "held", "charge", *words).exit_code == 2
    assert as_json(holdfast("show", "held", "--json"))["run"]["status"] == "held"


def test_settle_as_json(holdfast, runs):
    told = as_json(holdfast("settle", "held", "charge", "--not-done", "--json"))
    assert told["answer"]["status"] == "queued"
    assert told["next"][0].endswith("run MODULE:pay held")


def test_settle_names_the_flow_of_every_run_that_it_frees(holdfast, sqlite):
    first = Journal(sqlite, "first", flow="pay").held_in_doubt("charge", business_key="order:1")
    Journal(sqlite, "second", flow="bill").held_on_key("charge", first, "order:1")
    told = as_json(holdfast("settle", "second", "charge", "--done", "1", "--json"))
    assert told["answer"]["freed"] == ["second"]
    assert [line.partition(" run ")[2] for line in told["next"]] == [
        "MODULE:pay first",
        "MODULE:bill second",
    ]


def test_resume(holdfast, runs):
    assert "generation 2" in holdfast("resume", "failed").stdout
    refused = holdfast("resume", "diverged")
    assert refused.exit_code == 3
    assert "--accept-change" in refused.stderr
    accepted = holdfast("resume", "diverged", "--accept-change")
    assert accepted.exit_code == 0
    assert "Effects that have happened: mail" in accepted.stdout
    assert holdfast("resume", "done").exit_code == 1
    held = as_json(holdfast("resume", "held", "--json"))
    assert held["error"]["type"] == "RunHeld"
    assert held["exit_code"] == 3
    assert held["error"]["actions"]


def test_diverged_runs_of_a_flow_are_taken_up_together(holdfast, runs, terminal):
    Journal(runs, "other", flow="bill").step("search").held("diverged", "at think: …", "think")
    Journal(runs, "second").step("search").held("diverged", "at think: …", "think")
    many = ("resume", "--diverged", "--flow", "pay")
    asked = holdfast(*many)  # Nobody answers.
    assert "Resume 2 diverged runs of flow pay?" in asked.stderr
    assert [run.status for run in runs.list(Query(flow="pay", held_reason="diverged"))] == [
        "held",
        "held",
    ]
    told = as_json(holdfast(*many, "--yes", "--json"))
    assert [one["run_id"] for one in told["resumed"]] == ["second", "diverged"]
    assert (told["answer"], told["refused"]) == (None, 0)
    for run_id in ("second", "diverged"):
        last = as_json(holdfast("history", run_id, "--json"))["entries"][-1]
        assert (last["kind"], last["body"]["why"]) == ("run_released", "try_again")
    assert as_json(holdfast("show", "other", "--json"))["run"]["status"] == "held"
    assert "Resumed: 0 of flow pay." in holdfast(*many, "--yes").stdout


def test_a_change_is_accepted_of_all_diverged_runs_of_a_flow(holdfast, runs, terminal):
    many = ("resume", "--diverged", "--flow", "pay", "--accept-change")
    assert "1 diverged run of flow pay, with the changed code?" in (holdfast(*many).stderr)
    assert "diverged: the change is accepted" in holdfast(*many, "--yes").stdout
    kinds = [it["kind"] for it in as_json(holdfast("history", "diverged", "--json"))["entries"]]
    assert kinds[-2:] == ["change_accepted", "run_released"]


@pytest.mark.parametrize(
    "words",
    [
        ["--diverged"],
        ["--flow", "report"],
        ["diverged", "--diverged", "--flow", "report"],
        ["--diverged", "--failed", "--flow", "report"],
        ["--failed", "--accept-change"],
        ["--diverged", "--flow", "report", "--confirm"],
    ],
)
def test_what_cannot_be_meant_of_many_runs_is_refused(holdfast, runs, words):
    assert holdfast("resume", *words, "--yes").exit_code == 2
    assert as_json(holdfast("show", "diverged", "--json"))["run"]["status"] == "held"


def test_what_is_not_there(holdfast, runs):
    for words in (["show"], ["history"], ["explain"], ["resume"]):
        assert holdfast(*words, "nope").exit_code == 6
        assert as_json(holdfast(*words, "nope", "--json"))["exit_code"] == 6
    assert holdfast("settle", "nope", "x", "--not-done").exit_code == 6


def test_a_misspelt_run_id_names_the_nearest(holdfast, sqlite: Store):
    Journal(sqlite, "ticket-1").completed()
    Journal(sqlite, "order-7").completed()
    wrong = holdfast("show", "tiket-1")
    assert wrong.exit_code == 6
    assert "did you mean 'ticket-1'?" in wrong.stderr
    told = as_json(holdfast("show", "tiket-1", "--json"))["error"]["message"]
    assert told.endswith("; did you mean 'ticket-1'?")
    assert "did you mean" not in holdfast("show", "something-else").stderr


def test_verify_of_an_unknown_run_finds_no_damage(holdfast, sqlite: Store):
    Journal(sqlite, "ticket-1").completed()
    wrong = holdfast("store", "verify", "tiket-1")
    assert wrong.exit_code == 6
    assert "there is no run 'tiket-1' in sqlite:" in wrong.stderr
    assert "did you mean 'ticket-1'?" in wrong.stderr
    assert "damage" not in wrong.output
    assert (
        as_json(holdfast("store", "verify", "tiket-1", "--json"))["error"]["type"] == "RunNotFound"
    )


# -- the store as a whole ----------------------------------------------------------------------


def test_verify_backup_restore_adopt(holdfast, runs, tmp_path, url):
    assert holdfast("store", "verify").exit_code == 0
    assert as_json(holdfast("store", "verify", "done", "--json"))["sound"] is True
    assert holdfast("store", "accept-data-loss").exit_code == 0
    copy = str(tmp_path / "copy.db")
    assert as_json(holdfast("store", "backup", copy, "--json"))["bytes"] > 0
    assert holdfast("store", "backup", copy).exit_code == 2
    assert holdfast("store", "restore", copy).exit_code == 1
    there = f"sqlite:///{tmp_path}/there.db"
    (tmp_path / "notes.txt").write_text("no database")
    wrong = holdfast("store", "restore", str(tmp_path / "notes.txt"), "--url", there)
    assert "that `holdfast store backup` wrote" in wrong.stderr, "wherever that was"
    assert holdfast("store", "restore", copy, "--url", there).exit_code == 0
    assert len(as_json(holdfast("runs", "--url", there, "--json"))["runs"]) == 5


def test_a_store_that_lost_commits_has_a_banner(holdfast, runs, monkeypatch):
    from holdfast._stores.sqlite.sqlite_store import SqliteStore

    monkeypatch.setattr(SqliteStore, "regression", lambda self: "commit 7 is missing")
    result = holdfast("runs")
    assert result.exit_code == 7
    assert "commit 7 is missing" in result.stderr
    assert "store accept-data-loss" in result.stderr
    assert "held" in result.stdout
    told = as_json(holdfast("show", "done", "--json"))
    assert told["warning"] == "commit 7 is missing"


def test_verify_says_of_a_store_that_lost_commits_that_they_are_missing(
    holdfast, runs, tmp_path, url
):
    from holdfast._stores.sqlite.sqlite_store import SqliteStore
    from tests.contract.store_contract import new_run

    path, kept = url.removeprefix("sqlite:///"), tmp_path / "kept"
    runs.close()  # What it wrote is in the file then, and not in a second one.
    shutil.copy(path, kept)
    store = SqliteStore(path)
    store.start(new_run("lost"), None)
    store.close()
    shutil.copy(kept, path)
    for words in (["store", "verify"], ["store", "verify", "done"]):
        result = holdfast(*words)
        assert result.exit_code == 7
        assert "1 damage found" in result.stderr
        assert "the end of the store: the last 1 of" in result.stdout
        assert "which of them lost" in result.stdout
        assert "Everything that is stored is as it was written" not in result.output
    assert as_json(holdfast("store", "verify", "--json"))["sound"] is False


def test_long_commands_tell_how_far_they_are(holdfast, runs, tmp_path, monkeypatch, url):
    told = []

    @contextlib.contextmanager
    def progress(session):
        yield lambda *how_far: told.append(how_far)

    monkeypatch.setattr(Session, "progress", progress)

    def heard(*words):
        told.clear()
        assert holdfast(*words).exit_code == 0
        return list(told)

    file, other = str(tmp_path / "done.jsonl"), f"sqlite:///{tmp_path}/other.db"
    assert heard("store", "verify")[-1] == ("runs", 5, 5)
    assert heard("store", "verify", "done") == [("runs", 1, 1)]
    *_, (what, done, total) = heard("store", "backup", str(tmp_path / "copy.db"))
    assert (what, done > 0, done) == ("pages", True, total)
    assert heard("store", "export", "done", file) == [("runs", 1, 1)]
    assert heard("store", "import", file, "--url", other) == [("runs read", 1, 1), ("runs", 1, 1)]
    assert (
        heard("store", "prune", "--older-than", "0s", "--dry-run", "--url", other)[-1][0] == "runs"
    )
    assert heard("store", "move", url, other, "--run", "done") == [("runs", 1, 1)]


def test_how_far_it_is_is_drawn_on_a_terminal_only():
    for is_terminal in (True, False):
        session = Session("verify", None, None, as_json=False)
        drawn = io.StringIO()
        session.err = Console(file=drawn, force_terminal=is_terminal, width=80)
        with session.progress() as tell:
            tell("pages", 0, 0)
            tell("runs", 1, 2)
            tell("runs", 2, 2)
        assert ("runs" in drawn.getvalue()) is is_terminal


def test_a_damaged_run_ends_with_its_own_code(holdfast, runs, monkeypatch):
    from holdfast._stores.sqlite.sqlite_store import SqliteStore

    def load(self, row, skips=()):
        raise Corrupt("entry 3", run_id=row.run_id, why="the digest does not match")

    monkeypatch.setattr(SqliteStore, "load", load)
    result = holdfast("show", "done")
    assert result.exit_code == 7
    assert "entry 3 is damaged" in result.stderr
    assert as_json(holdfast("show", "done", "--json"))["error"]["type"] == "Corrupt"
    assert "cannot be read" in holdfast("explain", "done").stdout


@pytest.mark.parametrize("bad", ["mysql://x", "sqlite://x", "nonsense"])
def test_an_address_that_is_none(holdfast, bad):
    result = holdfast("runs", "--url", bad)
    assert result.exit_code == 1
    assert "Traceback" not in result.stderr
    assert "sqlite:///" in result.stderr


def test_a_file_that_is_no_store(holdfast, tmp_path):
    (tmp_path / "notes.txt").write_text("no database\n" * 500)
    result = holdfast("runs", "--url", f"sqlite:///{tmp_path}/notes.txt")
    assert result.exit_code in (1, 7)
    assert result.stderr.strip()


# -- how it is said ----------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["runs", "show", "history", "explain"])
def test_text_of_others_is_inert(holdfast, runs, command):
    words = [command] if command == "runs" else [command, "nasty"]
    for env in ({}, {"FORCE_COLOR": "1", "TERM": "xterm"}, {"NO_COLOR": "1"}):
        shown = holdfast(*words, env=env).stdout
        for bad in ("\x1b[2J", "\x1b]", "\x07", "\u202e", "\x9b"):
            assert bad not in shown
    plain = holdfast(*words).stdout
    assert "\x1b" not in plain
    if command != "runs":
        assert "[bold]x[/bold]" in plain.replace("\n", "").replace(" ", "") or command == "history"


def test_every_json_answer_parses(holdfast, runs):
    for words in (
        ["runs"],
        ["show", "nasty"],
        ["history", "nasty"],
        ["explain", "nasty"],
        ["store", "verify"],
        ["store", "accept-data-loss"],
        ["resume", "nasty"],
    ):
        as_json(holdfast(*words, "--json"))


@pytest.mark.parametrize("command", ["runs", "show", "history", "explain"])
def test_eighty_columns_are_enough(holdfast, runs, command):
    words = [command] if command == "runs" else [command, "held"]
    lines = holdfast(*words).stdout.splitlines()
    wide = [line for line in lines if len(line) > 80 and "holdfast" not in line]
    # What is longer is one value in one line, which a terminal wraps and a pipe wants whole.
    assert command in ("show", "history") or not wide


def test_help_names_every_exit_code(holdfast):
    text = holdfast("--help").stdout
    for code in range(9):
        assert f"  {code}  " in text
    assert "130" in EXIT_CODES
    for command in main.commands:
        assert holdfast(command, "--help").exit_code == 0


def test_the_address_may_come_from_the_environment(sqlite, url):
    Journal(sqlite, "r").completed()
    result = CliRunner(env={"HOLDFAST_URL": url}).invoke(main, ["runs", "--json"])
    assert [run["run_id"] for run in as_json(result)["runs"]] == ["r"]


def test_the_actor_is_the_user_of_the_system(holdfast, runs):
    holdfast("settle", "held", "charge", "--not-done")
    entries = as_json(holdfast("history", "held", "--json"))["entries"]
    assert entries[-1]["body"]["actor"] == session.os_user()


def test_queues_say_in_words_what_is_held_and_what_is_not_due(sqlite: Store, holdfast):
    Journal(sqlite, "held").held("paused")
    Journal(sqlite, "poison").held("quarantined")
    shown = holdfast("queues").stdout
    assert "2, 1 quarantined" in shown
    assert "NOT DUE" in shown
    assert "q.)" not in shown
