"""What every command says of itself in a list, and of a wrong usage to a program."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner
from rich.console import Console

from holdfast._operator.cli.entry_lines import Days
from holdfast._operator.cli.main import main
from holdfast._operator.read import run_views
from holdfast._stores.contract import Store
from tests.model.memory_store import MemoryStore
from tests.ops.journals import Journal


def commands(group: click.Group, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every command as it is typed, and every group of them."""
    for name in group.commands:
        command = group.commands[name]
        yield (*before, name)
        if isinstance(command, click.Group):
            yield from commands(command, (*before, name))


GROUPS = [
    (),
    *(path for path in commands(main) if isinstance(main.commands[path[0]], click.Group)),
]
GROUPS = [path for path in GROUPS if len(path) < 2]


@pytest.mark.parametrize("path", GROUPS, ids=" ".join)
def test_no_short_help_is_cut_off(path: tuple[str, ...]):
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(main, [*path, "--help"], terminal_width=80)
    assert shown.exit_code == 0
    lines = [line for line in shown.stdout.splitlines() if not line.startswith("Usage:")]
    assert [line for line in lines if line.rstrip().endswith(("...", "\u2026"))] == []


@pytest.mark.parametrize("path", [(), *commands(main)], ids=" ".join)
def test_a_wrong_usage_is_told_as_json(path: tuple[str, ...]):
    for words in ([*path, "--bogus", "--json"], ["--json", *path, "--bogus"]):
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 2
        told = json.loads(result.stdout)
        assert told["error"]["type"] == "UsageError"
        assert "--bogus" in told["error"]["message"]
        assert told["exit_code"] == 2
    plain = CliRunner().invoke(main, [*path, "--bogus"])
    assert (plain.exit_code, plain.stdout) == (2, "")
    assert "--bogus" in plain.stderr


def test_an_id_like_an_old_one_is_found_behind_many_newer(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(run_views, "NEWEST", 3)
    store = MemoryStore()
    Journal(store, "report-december").completed()
    for number in range(8):
        Journal(store, f"report-{number}").completed()
    assert run_views.nearest(store, "report-decembre") == "report-december"
    assert run_views.nearest(store, "eport-december") == "report-december"
    assert run_views.nearest(store, "quite-another") is None


def test_journals_tell_the_date_of_each_day(sqlite: Store, url: str):
    Journal(sqlite, "r").step("look").completed()
    day = run_views.history(sqlite, "r")[0].at.strftime("      %Y-%m-%d (UTC)")
    shown = CliRunner().invoke(main, ["--url", url, "history", "r"]).stdout.splitlines()
    assert shown[0] == day
    assert shown.count(day) == 1
    tailed = (
        CliRunner().invoke(main, ["--url", url, "history", "r", "--follow"]).stdout.splitlines()
    )
    assert day in tailed


def test_a_new_day_has_its_date():
    written = io.StringIO()
    out = Console(file=written, width=80)
    days = Days(out)
    for hour in (22, 23, 24, 25):
        days.at(dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(hours=hour))
    assert written.getvalue().split("\n") == [
        "      2026-01-01 (UTC)",
        "      2026-01-02 (UTC)",
        "",
    ]


@pytest.mark.parametrize("words", [["--url", "", "runs"], ["runs", "--url", ""]])
def test_an_empty_url_is_not_the_default_store(words: list[str], monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_URL", f"sqlite:///{tmp_path}/other.db")
    told = CliRunner().invoke(main, words)
    assert told.exit_code == 1
    assert "'' is not the URL of a store" in told.stderr


def test_an_empty_namespace_is_not_the_default_one(sqlite: Store, url: str):
    Journal(sqlite, "r").completed()
    for words in (["--namespace", "", "runs"], ["runs", "--namespace", ""]):
        told = CliRunner().invoke(main, ["--url", url, *words])
        assert "No runs yet" in told.stdout


@pytest.mark.parametrize("words", [["--flow", ""], ["--older-than", "0"], ["--search", ""]])
def test_an_empty_filter_is_a_filter(sqlite: Store, url: str, words: list[str]):
    """Such as that of an unset variable of the shell."""
    assert "No runs yet" in CliRunner().invoke(main, ["--url", url, "runs"]).stdout
    told = CliRunner().invoke(main, ["--url", url, "runs", *words])
    assert told.stdout == "No matching runs.\n"
