"""What docs/proof/guarantees.md promises names the tests that show it, and they exist.

Beside it: the reference of the command line is what the commands say, and the one promise that has
no better home, that logs hold no payloads.
"""

import ast
import logging
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from holdfast import flow, resource, step, testing
from holdfast.errors import RunFailed
from tests.tidy.source import ROOT, definitions

PAGE = ROOT / "docs" / "proof" / "guarantees.md"
INVARIANTS = {f"I{number}" for number in range(1, 25)}

HEADING = re.compile(r"^## (I\d+) ", re.MULTILINE)
LISTED = re.compile(r"^\* \[([^\]]+)\]\(\.\./\.\./([^)]+)\): (.+)$", re.MULTILINE)
NAMED = re.compile(r"`(\w+)`")


def promises(page: str) -> dict[str, list[tuple[str, str]]]:
    """Each invariant of the page -> the files and functions that are said to show it."""
    _, *parts = HEADING.split(page)
    found: dict[str, list[tuple[str, str]]] = {}
    for number, text in zip(parts[::2], parts[1::2], strict=True):
        section = text.partition("\n## ")[0]
        assert number not in found, f"{number} stands twice"
        found[number] = [
            (shown, name)
            for shown, target, names in LISTED.findall(section)
            for name in NAMED.findall(names)
            if shown == target
        ]
    return found


@cache
def marks_in(file: str) -> dict[str, str]:
    """The tests that a file defines, in classes too -> their decorators, as they are written."""
    path = ROOT / file
    if not path.is_file():
        return {}
    return {
        name.rpartition(".")[2]: " ".join(map(ast.unparse, node.decorator_list))
        for name, node in definitions(ast.parse(path.read_text("utf-8")))
        if name.rpartition(".")[2].startswith("test_")
    }


def missing(page: str) -> list[str]:
    return [
        f"{number}: {file} has no {name}"
        for number, shown in promises(page).items()
        for file, name in shown
        if name not in marks_in(file)
    ]


def shows_nothing(marks: str) -> bool:
    """A promise is not shown by a test that is expected to fail, or not run."""
    return re.search(r"\b(xfail|skip|skipif)\b", marks) is not None


def empty(page: str) -> list[str]:
    return [
        f"{number}: {name} shows nothing"
        for number, shown in promises(page).items()
        for file, name in shown
        if shows_nothing(marks_in(file).get(name, ""))
    ]


def test_every_test_that_is_named_exists():
    assert not missing(PAGE.read_text("utf-8"))


def test_every_test_that_is_named_shows_something():
    assert not empty(PAGE.read_text("utf-8"))


def test_sweeps_are_tried_whole_before_a_merge():
    """What `make test` tries a share of, or leaves out, still shows what the page promises."""
    assert "make sweeps" in (ROOT / ".ci" / "run").read_text("utf-8").splitlines()
    assert "HOLDFAST_SWEEPS=whole" in (ROOT / "Makefile").read_text("utf-8")


def test_every_invariant_that_is_listed_is_shown_by_a_test():
    unshown = [number for number, shown in promises(PAGE.read_text("utf-8")).items() if not shown]
    assert not unshown


def test_every_invariant_is_listed_or_said_not_to_be_in_this_version():
    page = PAGE.read_text("utf-8")
    listed = set(promises(page))
    absent = set(re.findall(r"\*\*(I\d+) ", page.partition("\n## Not in this version\n")[2]))
    assert listed | absent == INVARIANTS
    assert not listed & absent


GAP = re.compile(r"^\* \*\*I\d+\*\*.*: \[([^\]]+)\]\(\.\./\.\./[^)]+\): (.+)$", re.MULTILINE)


def test_a_known_gap_is_one():
    gaps = PAGE.read_text("utf-8").partition("\n## Known gaps\n")[2].partition("\n## ")[0]
    mended = [
        name
        for file, names in GAP.findall(gaps)
        for name in NAMED.findall(names)
        if "xfail" not in marks_in(file).get(name, "")
    ]
    assert not mended, "take these out of the known gaps, and name them where they show a promise"


def test_every_line_of_a_list_is_understood():
    sections = re.split(r"\n## (?:Known gaps|Not in this version)\n", PAGE.read_text("utf-8"))[0]
    lines = [line for line in sections.splitlines() if line.startswith("* ")]
    strange = [line for line in lines if not LISTED.match(line)]
    assert not strange


FILE = Path(__file__).relative_to(ROOT).as_posix()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        (
            f"* [{FILE}](../../{FILE}): `test_no_such_test`",
            [f"I1: {FILE} has no test_no_such_test"],
        ),
        ("* [tests/no.py](../../tests/no.py): `test_x`", ["I1: tests/no.py has no test_x"]),
        (f"* [{FILE}](../../{FILE}): `promises`", [f"I1: {FILE} has no promises"]),
        (f"* [{FILE}](../../{FILE}): `test_every_test_that_is_named_exists`", []),
    ],
)
def test_a_test_that_does_not_exist_is_found(line, found):
    assert missing(f"# Guarantees\n\n## I1 Durable ack\n\n{line}\n") == found


@pytest.mark.parametrize(
    ("marks", "nothing"),
    [
        ("pytest.mark.xfail(reason='not mended yet')", True),
        ("pytest.mark.parametrize('n', [1]) pytest.mark.skipif(True)", True),
        ("pytest.mark.parametrize('skipped', [1])", False),
        ("", False),
    ],
)
def test_a_test_that_shows_nothing_is_found(marks, nothing):
    assert shows_nothing(marks) is nothing


def test_a_promise_without_a_test_is_found():
    assert promises("## I1 Durable ack\n\n> It is.\n\n## Not in this version\n") == {"I1": []}


def test_the_reference_of_the_command_line_is_what_the_commands_say():
    script = ROOT / "docs" / "generate_cli.py"
    done = subprocess.run([sys.executable, str(script), "--check"], check=False, timeout=60)
    assert done.returncode == 0, "write it again: python docs/generate_cli.py"


# -- I24 ---------------------------------------------------------------------------------------

CANARY = "canary-7f3a"


def make_client() -> str:
    return f"client {CANARY}"


@step
def tell(text: str, client: str = resource(make_client)) -> str:
    assert CANARY in client
    return f"told {text}"


@step
def stumble(text: str) -> str:
    raise ValueError("it cannot be done")


@flow
def telling(text: str) -> str:
    return tell(text)


@flow
def stumbling(text: str) -> str:
    return stumble(tell(text))


def test_payloads_and_clients_are_not_logged(caplog, capfd):
    caplog.set_level(logging.DEBUG)
    with testing.store(url="sqlite:") as store:
        assert telling.run("r-1", CANARY) == f"told {CANARY}"
        with pytest.raises(RunFailed):
            stumbling.run("r-2", CANARY)
        stumbling.submit("r-3", CANARY)
        assert store.recover() == ["r-3"]
    written = capfd.readouterr()
    assert CANARY not in caplog.text + written.out + written.err
