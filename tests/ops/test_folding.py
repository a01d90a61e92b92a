"""However narrow a terminal is, text ends: every row takes something of the line, and nothing is lost."""

import random
from pathlib import Path

import pytest
from rich.cells import cell_len

import holdfast
from holdfast import flow, step
from holdfast._operator.cli import dashboard
from holdfast._operator.cli.tables import folded
from tests.ops.terminal import Terminal

PIECES = ("  ", " ", "a", "bb" * 20, "漢" * 9, "🙂", "- ", "e\u0301", "holdfast ", "    ")


@pytest.mark.timeout(20)
def test_every_line_ends_at_every_width():
    chance = random.Random(5)
    for _ in range(3000):
        line = "".join(chance.choice(PIECES) for _ in range(chance.randint(0, 20)))
        width = chance.randint(0, 60)
        rows = folded(line, width)
        assert "".join(rows).replace(" ", "") == line.replace(" ", "")
        assert len(rows) <= max(1, len(line))
        for row in rows:
            assert cell_len(row.rstrip()) <= max(2, width), (line, width, row)
        dashboard.page_of("Run x", line, width, chance.randint(1, 30), chance.randint(0, 50))


@pytest.mark.timeout(20)
def test_a_very_long_line_is_folded_in_no_time():
    assert len(folded("      " + "a" * 300_000, 1)) == 300_000


def test_what_goes_on_stands_further_in_unless_there_is_no_room():
    assert folded("  - one two three", 11) == ["  - one two", "    three"]
    assert folded("      one", 4) == ["  on", "  e"]
    assert folded("", 1) == [""]


@step
def folding_break(text: str) -> str:
    raise ValueError(text)


@flow
def folding_fails() -> str:
    return folding_break("a longer text about what went wrong here, for an explanation")


def test_top_can_be_left_on_a_terminal_of_one_cell(tmp_path: Path):
    url = f"sqlite:///{tmp_path}/runs.db"
    with holdfast.open(url):
        with pytest.raises(holdfast.errors.RunFailed):
            folding_fails.run("folding-1")
    with Terminal.holdfast("--url", url, "top") as terminal:
        terminal.until("folding-1")
        terminal.press("\r")
        terminal.until("for an explanation")
        terminal.resize(1, 1)
        drawn = len(terminal.raw)
        terminal.until(lambda: len(terminal.raw) > drawn)
        terminal.press("qq")
        assert terminal.ended() == 0
