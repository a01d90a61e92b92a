"""The evidence card names tests that exist, and kills for each recovery action and failure check."""

import re

from tests.tidy.source import ROOT
from tests.tidy.test_guarantees import marks_in, shows_nothing

PAGE = ROOT / "docs" / "proof" / "guarantees.md"
FILE = re.compile(r"\]\(\.\./\.\./(tests/[\w/]+\.py)\)")
NAMED = re.compile(r"`(test_\w+)`")
ACTIONS = ("resume", "rollback", "cancel", "human handoff", "degrade gracefully")
CHECKS = ("stuck run", "duplicate action", "partial failure", "runaway cost")


def card() -> str:
    """Return the section of the page that is the evidence card."""
    return PAGE.read_text("utf-8").partition("\n## Evidence card\n")[2]


def unknown(page: str) -> list[str]:
    """Return the tests that a line names, and that no file linked in that line has."""
    return [
        name
        for line in page.splitlines()
        for name in NAMED.findall(line)
        if not any(
            name in marks_in(file) and not shows_nothing(marks_in(file)[name])
            for file in FILE.findall(line)
        )
    ]


def rows(page: str, heading: str) -> dict[str, str]:
    """Return the lines of a section's table by their first cell."""
    section = page.partition(f"\n### {heading}\n")[2].partition("\n#")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return {line.split("|")[1].strip(): line for line in lines[1:]}


def test_every_test_that_is_named_exists():
    assert unknown(card()) == []


def test_a_test_that_does_not_exist_is_noticed():
    line = "| x | [a](../../tests/crash/test_research.py): `test_of_nothing` |"
    assert unknown(line) == ["test_of_nothing"]


def test_each_recovery_action_names_a_test():
    found = rows(card(), "Recovery actions")
    assert [bool(NAMED.search(found[action])) for action in ACTIONS] == [True] * len(ACTIONS)


def test_each_failure_check_is_listed():
    assert set(CHECKS) <= set(rows(card(), "Failure checks"))
