"""The long example is killed at every entry of its journal, and comes to the same end.

Here each entry once, by turns before and after its commit; `python -m tests.torture --research`
kills at both sides of each, kept and withdrawn.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import sweeps
from tests.crash.harness import BOTH_STORES, ROOT, World
from tests.crash.research import REPORT, TEXT, Desk, compare, desk

ENTRIES_AT_LEAST = 40
EVERY = sweeps.size(3, 1)
"""Every how manieth entry is one to die at; each comes to its turn in a whole sweep."""
AT_A_TIME = 5
"""How many entries further each life of a run is killed."""
PUBLISHED = 40
"""About where the report is out, and a withdrawn one begins to be rolled back."""


@pytest.fixture(scope="module")
def at_desk() -> Iterator[Desk]:
    with desk() as made:
        yield made


@pytest.mark.sweep
def test_killed_at_every_entry(at_desk: Desk, tmp_path: Path) -> None:
    entry = 1
    while at_desk.killed_once(tmp_path, entry, side(entry), withdrawn=False):
        entry += EVERY
    assert entry > ENTRIES_AT_LEAST


@pytest.mark.sweep
def test_killed_at_every_entry_of_its_rollback(at_desk: Desk, tmp_path: Path) -> None:
    entry = PUBLISHED
    while at_desk.killed_once(tmp_path, entry, side(entry), withdrawn=True):
        entry += EVERY
    assert entry > PUBLISHED + 5


@BOTH_STORES
@pytest.mark.parametrize("withdrawn", [False, True])
def test_killed_several_times_in_one_run(world: World, at_desk: Desk, withdrawn: bool) -> None:
    at_desk.servers.clear()
    deaths = 0
    while at_desk.live(world.url, 3 + deaths * AT_A_TIME, side(deaths), withdrawn=withdrawn):
        deaths += 1
    assert deaths > ENTRIES_AT_LEAST // AT_A_TIME
    with world.store() as store:
        compare(store, at_desk.servers.books(), deaths=deaths, withdrawn=withdrawn)


@pytest.mark.parametrize("step", ["think", "publish", "file_away"])
def test_killed_between_what_was_done_and_its_record(
    at_desk: Desk, tmp_path: Path, step: str
) -> None:
    assert at_desk.killed_once(tmp_path, step, "outcome", withdrawn=False)


def test_a_look_that_finds_nothing_is_noticed(
    at_desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted: killed between the request and its record, the report is published again."""
    monkeypatch.setattr(at_desk, "blind", True)
    with pytest.raises(AssertionError, match="requests to publish: {'report-1': 2}"):
        at_desk.killed_once(tmp_path, "publish", "outcome", withdrawn=False)


def side(number: int) -> str:
    return "after" if number % 2 else "before"


@pytest.mark.parametrize(
    ("options", "said"),
    [([], f"published at /reports/{REPORT}: {TEXT}"), (["--withdraw"], "rolled back: withdrawn")],
)
def test_the_demonstration(options: list[str], said: str) -> None:
    """Without servers or people of one's own: both are there, and somebody answers."""
    command = [sys.executable, "-m", "examples.research", "demo", *options]
    env = {name: value for name, value in os.environ.items() if name != "RESEARCH_WORLD"}
    ended = subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode == 0, ended.stderr
    assert said in ended.stdout
    assert "edna is asked 'publish', and says 'approved'" in ended.stdout
