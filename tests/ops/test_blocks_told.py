"""A block of a script has no flow that a command could name: people are told to run the script."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import holdfast
from holdfast._ops.cli.main import main
from holdfast.errors import RunHeld


@holdfast.effect(name="bt-charge")
def charge() -> str:
    raise ConnectionError("no answer")


@holdfast.step(name="bt-look")
def look(what: str) -> str:
    return what


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/runs.db"
    with holdfast.open(url, default=False) as store:
        with pytest.raises(RunHeld), holdfast.run("doubt", name="orders", store=store):
            charge()
        with pytest.raises(KeyboardInterrupt), holdfast.run("other", store=store):
            look("one")
            raise KeyboardInterrupt
        with pytest.raises(RunHeld), holdfast.run("other", store=store):
            look("two")
    return url


def told(url: str, *words: str) -> str:
    result = CliRunner().invoke(main, [*words, "--url", url])
    assert result.exit_code == 0, result.output
    return result.output


def test_explain_says_to_run_the_program_again(url: str) -> None:
    text = told(url, "explain", "other")
    assert "run your program again." in " ".join(text.split())
    assert "MODULE" not in text


def test_settle_says_to_run_the_script_again(url: str) -> None:
    text = told(url, "settle", "doubt", "bt-charge", "--not-done")
    assert "run that script again" in text
    assert "MODULE" not in text


def test_resume_says_to_run_the_script_again(url: str) -> None:
    text = told(url, "resume", "other", "--accept-change")
    assert "run that script again" in text
    assert "MODULE" not in text


def test_a_program_is_told_of_no_command(url: str) -> None:
    said = json.loads(told(url, "settle", "doubt", "bt-charge", "--not-done", "--json"))
    assert said["answer"]["goes_on"] is True
    assert said["next"] == []
