"""Captures of a real terminal, 80 x 24: what `run`, `history --follow`, `top` and a pager show to a person."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.terminal.tmux import Tmux
from tests.tidy.source import ROOT

FLOWS = str(Path(__file__).parent / "agents.py")


@pytest.fixture
def windows(tmp_path: Path) -> Iterator[list[Tmux]]:
    """Two terminals on one store."""
    env = {
        "HOLDFAST_URL": f"sqlite:///{tmp_path}/runs.db",
        "HOLDFAST_TEST_FOLDER": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "LANG": "C.UTF-8",
    }
    names = [f"holdfast-{uuid.uuid4().hex[:12]}" for _ in range(2)]
    with Tmux(names[0], tmp_path, env) as first, Tmux(names[1], tmp_path, env) as second:
        yield [first, second]


def fits(lines: list[str]) -> None:
    assert len(lines) <= 24
    assert all(len(line) <= 80 for line in lines)
    assert not any("\x1b" in line or "^[" in line for line in lines)


def test_run_and_tail_side_by_side(windows: list[Tmux], tmp_path: Path) -> None:
    works, follows = windows
    works.run(
        "holdfast", "run", f"{FLOWS}:research", "report-42", "--input", '{"topic": "refunds"}'
    )
    works.until("Executing run report-42.")
    follows.run("holdfast", "history", "report-42", "--follow")
    follows.until("report-42  running  tt.research")
    (tmp_path / "go").touch()

    lines = works.until('Result: "published"')
    fits(lines)
    works.keep("run")
    text = "\n".join(lines)
    assert re.search(
        r"^  ↻ turns\[1\]/tt.think +attempt 1, again in .*: TimeoutError: the ", text, re.M
    )
    assert re.search(r"^  ✓ turns\[2\]/gather\[1\]/tt.search ", text, re.M)
    assert re.search(r"^! process \d+ .* another starts in", text, re.M)
    assert re.search(r"^  \? tt.publish +in doubt: its process died in the middle$", text, re.M)
    assert re.search(r"^Completed: \d+ steps, 1 restart\.$", text, re.M)
    assert 'Result: "published"' in text

    lines = follows.until("report-42  completed  tt.research")
    follows.keep("follow")
    fits(lines)
    text = "\n".join(lines)
    assert re.search(r"^ +\d+  [\d:.]{12}  step_in_doubt +tt.publish ", text, re.M)
    assert re.search(r"^ +\d+  [\d:.]{12}  run_completed +\"published\"$", text, re.M)


def test_top_of_a_fleet(windows: list[Tmux], tmp_path: Path) -> None:
    works, watches = windows
    works.run("holdfast", "run", f"{FLOWS}:pay", "pay-77", "--input", '{"amount": 12}')
    works.until("holdfast settle pay-77 tt.charge --not-done")
    for n in range(3):
        works.run("python", "-c", _SUBMIT.format(folder=str(ROOT), flows=FLOWS, n=n))
        works.until(f"submitted {n}")
    works.run("holdfast", "worker", FLOWS, "--concurrency", "2")
    watches.run("holdfast", "top")
    lines = watches.until(lambda seen: "\n".join(seen).count("running") == 2)
    watches.keep("top")
    fits(lines)
    text = "\n".join(lines)
    assert re.match(r"holdfast top  1 worker  \S{8} 100% busy  1 held$", lines[0])
    assert re.search(r"^! pay-77 +held: in_doubt +tt.pay +tt.charge +\d", text, re.M)
    assert re.search(r"^  research-\d +running +tt.research ", text, re.M)
    assert re.search(r"^  research-\d +queued +tt.research ", text, re.M)
    assert re.search(r"^default +1 +0 +2 +0 +1 ", text, re.M)

    watches.press("Enter")
    lines = watches.until("What can be done now")
    watches.keep("top-explain")
    fits(lines)
    assert "Run pay-77 of flow tt.pay is held" in "\n".join(lines)
    watches.press("q")
    watches.press("h")
    watches.until(lambda seen: any("NEEDS A PERSON" in line for line in seen))
    watches.keep("top-needs-a-person")
    assert "research-" not in "\n".join(watches.seen())
    watches.press("h")
    watches.resize(120, 40)
    watches.until(lambda seen: len(seen) == 40 and seen[-1].startswith("↑↓ choose"))
    watches.keep("top-wide")
    watches.resize(80, 24)
    watches.press("q")
    # What was there before is there again.
    watches.until(lambda seen: seen[0].startswith("ready> holdfast top"))
    (tmp_path / "go").touch()
    works.press("C-c")


_SUBMIT = (
    "import sys; sys.path.insert(0, {folder!r}); "
    "from tests.terminal.agents import research; "
    "research.submit('research-{n}', 'x'); print('submitted', {n})"
)


def test_less_shows_long_output(windows: list[Tmux], tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    works, reads = windows
    works.run(
        "holdfast", "run", f"{FLOWS}:research", "report-42", "--input", '{"topic": "refunds"}'
    )
    works.until("Completed")
    reads.run("holdfast", "history", "report-42")
    lines = reads.until(lambda seen: len(seen) == 24 and seen[-1] == ":")
    reads.keep("history")
    fits(lines)
    assert re.fullmatch(r" +\d{4}-\d\d-\d\d \(UTC\)", lines[0])
    assert re.match(r" +1  [\d:.]{12}  run_started ", lines[1])
    reads.press("G")
    lines = reads.until(lambda seen: any("run_completed" in line for line in seen))
    fits(lines)
    reads.press("q")
    reads.until(lambda seen: seen[-1].startswith("ready>"))
    reads.run("clear")
    reads.run("holdfast", "runs")
    lines = reads.until("report-42")
    assert any(re.match(r"report-42 +tt.research +1 +completed ", line) for line in lines)
