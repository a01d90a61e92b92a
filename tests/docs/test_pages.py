"""Docs run: every block of Python and every command of ours that a reader can copy is executed."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.crash.forkserver import fork_server
from tests.docs.page import ROOT, anchors, blocks, links, pages, pages_with_links, programs

PLAY = ROOT / "tests" / "docs" / "play.py"
PAGE_S = 100


def play(page: Path, folder: Path, number: int = 1) -> subprocess.CompletedProcess[str]:
    """Play a program of a page in a process of its own, forked from one that has the library loaded."""
    environment = os.environ | {
        "HOLDFAST_URL": "sqlite:///docs.db",
        "NO_COLOR": "1",
        "PYTHONPATH": str(ROOT),
    }
    command = [str(PLAY), str(page), str(number)]
    with (folder / ".out").open("w+b") as out, (folder / ".err").open("w+b") as err:
        process = fork_server().start(command, stdout=out, stderr=err, cwd=folder, env=environment)
        try:
            code = process.wait(PAGE_S)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(command, code, out.read().decode(), err.read().decode())


def title(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def played() -> list[Any]:
    """Each page with the number of each of its programs."""
    found = []
    for page in pages():
        for number, text in enumerate(programs(page.read_text(encoding="utf-8")), 1):
            if any(blocks(text)):
                found.append(pytest.param(page, number, id=f"{title(page)}-{number}"))
    return found


@pytest.mark.parametrize(("page", "number"), played())
def test_a_page_does_what_it_says(page: Path, number: int, tmp_path: Path):
    done = play(page, tmp_path, number)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_index_lists_every_page():
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / link).resolve() for link in links(index.read_text(encoding="utf-8"))}
    decisions = ROOT / "docs" / "decisions"  # They have an index of their own.
    pages = {page for page in (ROOT / "docs").rglob("*.md") if page.parent != decisions}
    assert pages - linked - {index} == set()


@pytest.mark.parametrize("page", pages_with_links(), ids=title)
def test_a_link_leads_somewhere(page: Path):
    broken = []
    for link in links(page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        inside = target.is_relative_to(ROOT) and target.exists()
        if not inside or (
            anchor
            and target.suffix == ".md"
            and anchor not in anchors(target.read_text(encoding="utf-8"))
        ):
            broken.append(link)
    assert not broken


FENCE = "```"


@pytest.mark.parametrize(
    "text",
    [
        f"{FENCE}python\nx = 1\n{FENCE}\n\nthen\n\n{FENCE}python\nassert x == 1\n{FENCE}\n",
        f"{FENCE}python {{.no-run}}\nraise SystemExit(7)\n{FENCE}\n",
        f"<!-- docs: skip needs a model -->\n{FENCE}python\n1 / 0\n{FENCE}\n",
        f"<!-- docs: raises ZeroDivisionError -->\n\n{FENCE}python\n1 / 0\n{FENCE}\n",
        f"{FENCE}console\n$ python no-such-file.py\n{FENCE}\n",
        f"{FENCE}sql\nSELECT nothing FROM nowhere\n{FENCE}\n",
        f"{FENCE}python\nassert __name__ == '__main__'\n{FENCE}\n",
        f"{FENCE}python\ndef f(): ...\nimport inspect\nassert inspect.getsource(f)\n{FENCE}\n",
    ],
)
def test_a_good_page_is_played(text: str, tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{text}")
    done = play(page, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"{FENCE}python\nx = 1\n1 / 0\n{FENCE}\n", 'page.md", line 5'),
        (f"{FENCE}python {{.no-run}}\nx = = 1\n{FENCE}\n", "SyntaxError"),
        (f"<!-- docs: skip -->\n{FENCE}python\nx = 1\n{FENCE}\n", "not understood"),
        (f"<!-- docs: raises RunHeld -->\n{FENCE}python\nx = 1\n{FENCE}\n", "was not raised"),
        (f"<!-- docs: raises RunHeld -->\n{FENCE}python\n1 / 0\n{FENCE}\n", "ZeroDivisionError"),
        (f"{FENCE}console\n$ holdfast no-such-command\n{FENCE}\n", "expected 0"),
    ],
)
def test_a_bad_page_is_found(text: str, told: str, tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n{text}")
    done = play(page, tmp_path)
    assert done.returncode != 0
    assert told in done.stdout + done.stderr


def test_the_blocks_of_a_page_are_found():
    text = (
        f"{FENCE}python\nx = 1\n{FENCE}\n\n"
        f"<!-- docs: exit 3 -->\n\n{FENCE}console\n$ holdfast show \\\n    x\nheld\n$ ls\n{FENCE}\n"
    )
    first, second = blocks(text)
    assert (first.language, first.line, first.run) == ("python", 2, True)
    assert (second.commands, second.exit_code) == (["holdfast show      x"], 3)


def test_the_programs_of_a_page_know_nothing_of_each_other(tmp_path: Path):
    page = tmp_path / "page.md"
    new = "<!-- docs: new program -->"
    page.write_text(f"{FENCE}python\nx = 1\n{FENCE}\n\n{new}\n\n{FENCE}python\nx\n{FENCE}\n")
    assert play(page, tmp_path).returncode == 0
    second = play(page, tmp_path, 2)
    assert second.returncode != 0
    assert 'page.md", line 8' in second.stderr


def test_links_and_anchors_are_found():
    text = "# What `run` does, and why\n\n[a](docs/x.md#y) ![b](c.png) [d](https://example.com)\n"
    assert list(links(text)) == ["docs/x.md#y", "c.png"]
    assert anchors(text) == {"what-run-does-and-why"}
