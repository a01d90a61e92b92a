"""The reference says what the commands do: every command, and every field of their JSON."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

from holdfast._ops.cli.main import main
from holdfast._ops.cli.reference import SHAPES, reference
from tests.ops.journals import Journal

ALWAYS = {"version", "command"}
SAID = [
    (["runs"], "runs"),
    (["show", "done"], "show"),
    (["history", "done"], "history"),
    (["explain", "held"], "explain"),
    (["settle", "held", "charge", "--not-done"], "settle"),
    (["resume", "failed"], "resume"),
    (["fork", "done", "forked", "--before", "search"], "fork"),
    (["verify"], "verify"),
]


def test_every_command_is_in_it():
    assert set(SHAPES) == set(main.commands)
    page = reference()
    for name in main.commands:
        assert f"## holdfast {name}\n" in page
    assert "130  interrupted" in page
    assert "\x08" not in page


@pytest.mark.parametrize(("words", "name"), SAID, ids=[name for _, name in SAID])
def test_answers_have_the_fields_that_it_names(sqlite, url, words, name):
    Journal(sqlite, "done").step("search").completed()
    Journal(sqlite, "held").held_in_doubt("charge")
    Journal(sqlite, "failed").failing("think").failed("think")
    result = CliRunner().invoke(main, ["--url", url, *words, "--json"], catch_exceptions=False)
    assert set(json.loads(result.stdout)) == ALWAYS | set(SHAPES[name])


def test_objects_have_the_fields_that_it_names(sqlite, url):
    Journal(sqlite, "r").step("search").completed()
    result = CliRunner().invoke(main, ["--url", url, "show", "r", "--json"], catch_exceptions=False)
    run = json.loads(result.stdout)["run"]
    [line] = [line for line in reference().splitlines() if line.startswith("* **RunView**")]
    assert line == "* **RunView**: " + ", ".join(f"`{name}`" for name in run)
