"""Every file that ARCHITECTURE.md and CONTRIBUTING.md name exists, and the name leads to one file."""

import re

import pytest

from tests.tidy.source import ROOT, name_of, repository_files

PAGES = ("ARCHITECTURE.md", "CONTRIBUTING.md")
QUOTED = re.compile(r"`([\w./-]+\.(?:py|toml|sql|md))`")
WALKED = re.compile(r"^([\w/]+\.py) ", re.MULTILINE)
IN_EVERY_DIALECT = {"queries.sql"}


def files_named_by(text: str) -> set[str]:
    """Return the files that a page names in backquotes, or in a walk."""
    return {*QUOTED.findall(text), *WALKED.findall(text)} - IN_EVERY_DIALECT


def meant_by(name: str, tracked: list[str]) -> list[str]:
    """Return the tracked files that a name may mean: a full path, or the end of one in the package."""
    package = "src/holdfast/"
    exact = [path for path in tracked if path in {name, package + name}]
    return exact or [
        path for path in tracked if path.startswith(package) and path.endswith("/" + name)
    ]


@pytest.mark.parametrize("page", PAGES)
def test_every_named_file_is_one_file(page: str) -> None:
    tracked = [name_of(path) for path in repository_files()]
    named = files_named_by((ROOT / page).read_text(encoding="utf-8"))
    assert named
    found = {name: meant_by(name, tracked) for name in named}
    assert not {name: paths for name, paths in found.items() if len(paths) != 1}


def test_a_name_that_leads_nowhere_or_to_two_files_is_noticed() -> None:
    tracked = ["src/holdfast/a/model.py", "src/holdfast/b/model.py", "pyproject.toml"]
    assert meant_by("gone.py", tracked) == []
    assert len(meant_by("model.py", tracked)) == 2
    assert meant_by("a/model.py", tracked) == ["src/holdfast/a/model.py"]
    assert files_named_by("see `x/y.py`\na/b.py   f\n") == {"x/y.py", "a/b.py"}
