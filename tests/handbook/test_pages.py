"""The handbook as a whole: each page has its test, its parts, and a line in the index."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.handbook.world import PAGES, World
from tests.tidy.source import ROOT

SITUATIONS = sorted(it.stem for it in PAGES.glob("*.md") if it.stem != "README")
PARTS = ("**What you see.**", "**What it means.**", "**Safe.**", "**Not safe.**", "**What to do.**")
OVER = "**How to know that it is over.**"
LINES_MAX, CHARS_MAX = 62, 3_600
"""One screen."""


def test_each_page_has_a_test_and_a_line_in_the_index():
    tests = {it.stem.removeprefix("test_").replace("_", "-") for it in _tests()}
    index = (PAGES / "README.md").read_text(encoding="utf-8")
    assert tests - {"pages"} == set(SITUATIONS)
    assert set(re.findall(r"\]\(([\w-]+)\.md\)", index)) == set(SITUATIONS)


def _tests() -> list[Path]:
    return sorted((ROOT / "tests" / "handbook").glob("test_*.py"))


@pytest.mark.parametrize("name", SITUATIONS)
def test_a_page_says_all_that_is_needed_on_one_screen(name: str):
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    at = [text.find(part) for part in (*PARTS, OVER)]
    assert -1 not in at
    assert at == sorted(at)
    assert len(text.splitlines()) <= LINES_MAX
    assert len(text) <= CHARS_MAX


def test_what_always_works(tmp_path: Path):
    world = World(tmp_path, "README")
    world.program("@flow\ndef plain():\n    return 5\n\n\nplain.run('r')\n")
    assert world.shell("python agent.py").returncode == 0
    world.paste("doctor")
    assert "completed" in world.paste("explain", RUN="r")
    assert not world.page.left
