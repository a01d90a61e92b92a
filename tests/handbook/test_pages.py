"""The runbook as a whole: each section has its test, its parts, and a line in the table."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.handbook.world import INTRODUCTION, World, sections
from tests.tidy.source import ROOT

SITUATIONS = sorted(sections().keys() - {INTRODUCTION})
PARTS = ("**Symptoms.**", "**Meaning.**", "**Safe.**", "**Not safe.**", "**Action.**")
OVER = "**Done when.**"
LINES_MAX, CHARS_MAX = 62, 3_600
"""One screen."""


def test_each_section_has_a_test_and_a_line_in_the_table():
    tests = {it.stem.removeprefix("test_").replace("_", "-") for it in _tests()}
    table = sections()[INTRODUCTION]
    assert tests - {"pages"} == set(SITUATIONS)
    assert set(re.findall(r"\]\(#([\w-]+)\)", table)) == set(SITUATIONS)


def _tests() -> list[Path]:
    return sorted((ROOT / "tests" / "handbook").glob("test_*.py"))


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_section_says_all_that_is_needed_on_one_screen(name: str):
    text = sections()[name]
    at = [text.find(part) for part in (*PARTS, OVER)]
    assert -1 not in at
    assert at == sorted(at)
    assert len(text.splitlines()) <= LINES_MAX
    assert len(text) <= CHARS_MAX


def test_what_always_works(tmp_path: Path):
    world = World(tmp_path, INTRODUCTION)
    world.program("@flow\ndef plain():\n    return 5\n\n\nplain.run('r')\n")
    assert world.shell("python agent.py").returncode == 0
    world.paste("doctor")
    assert "completed" in world.paste("explain", RUN="r")
    assert not world.page.left
