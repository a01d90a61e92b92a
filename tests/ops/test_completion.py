"""Completion: commands, options, and what is in the store; quick, and silent when nothing is there."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.shell_completion import BashComplete, ZshComplete

from holdfast._operator.cli.completion import PROGRAM, VARIABLE, script_for
from holdfast._operator.cli.main import main
from holdfast._stores.contract import Store
from tests.ops.journals import Journal


@pytest.fixture
def runs(sqlite: Store, url: str, monkeypatch: pytest.MonkeyPatch) -> Store:
    monkeypatch.setenv("HOLDFAST_URL", url)
    Journal(sqlite, "report-1", flow="cm.report").step("turns[0]/search#2").held_in_doubt("charge")
    Journal(sqlite, "report-2::child-1", flow="cm.report")
    Journal(sqlite, "other", flow="cm.other")
    for nasty in ("report $(reboot)", "report;x", "report`x`", "report 'x'", "report&&x"):
        Journal(sqlite, nasty, flow="cm.nasty")
    return sqlite


def offered(*words: str, shell: type = ZshComplete) -> list[str]:
    *before, incomplete = words
    complete = shell(main, {}, PROGRAM, VARIABLE)
    return [item.value for item in complete.get_completions(before, incomplete)]


def test_commands_and_options(url: str) -> None:
    assert set(offered("st")) == {"state", "store"}
    assert "--older-than" in offered("runs", "--")
    assert offered("runs", "--status", "he") == ["held"]
    assert offered("memory", "") == ["delete", "get", "list", "set"]


def test_what_is_in_the_store(runs: Store, url: str) -> None:
    assert offered("show", "rep") == ["report-2::child-1", "report-1"]
    assert offered("show", "nothing") == []
    assert offered("settle", "report-1", "c") == ["charge"]
    assert offered("history", "report-1", "--step", "t") == ["turns[0]/search#2"]
    assert offered("runs", "--flow", "cm.o") == ["cm.other"]
    assert offered("--url", url, "runs", "--queue", "d") == ["default"]
    assert offered("fork", "report-1", "new", "--before", "ch") == ["charge"]


def test_a_name_that_a_shell_would_take_apart_is_not_offered(
    runs: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not any(set(name) & set(" ;&$`'") for name in offered("show", ""))
    monkeypatch.setenv(VARIABLE, "bash_complete")
    assert offered("show", "rep", shell=BashComplete) == ["report-1"]


@pytest.mark.parametrize(
    "url",
    ["sqlite:///nothing/here.db", "postgresql://nobody@127.0.0.1:1/none", "nonsense", "sqlite:///"],
)
def test_without_a_store_nothing_is_offered_and_nothing_is_said(
    url: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOLDFAST_URL", url)
    begun_s = time.monotonic()
    assert offered("show", "") == []
    assert time.monotonic() - begun_s < 10
    assert capfd.readouterr() == ("", "")


def test_damage_is_not_the_time_to_speak(runs: Store, url: str, tmp_path: Path) -> None:
    runs.close()
    (tmp_path / "runs.db").write_bytes(b"nothing that SQLite knows" * 1000)
    assert offered("show", "") == []


def test_bash_really_completes(runs: Store, url: str, tmp_path: Path) -> None:
    command = tmp_path / "holdfast"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m holdfast._operator.cli "$@"\n')
    command.chmod(0o755)
    # click finds out which shell it is for by the name of the program that was called.
    script = (
        'eval "$(holdfast completion bash)"\n'
        "COMP_WORDS=(holdfast show rep) COMP_CWORD=2\n"
        "_holdfast_completion holdfast rep show\n"
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
    )
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOLDFAST_URL": url}
    done = subprocess.run(
        ["/bin/bash", "--norc", "-c", script], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["report-1"]
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_says_how_it_is_used(shell: str) -> None:
    script = script_for(shell, main)
    assert script.startswith(f"# To complete holdfast in {shell}:\n")
    assert VARIABLE in script
