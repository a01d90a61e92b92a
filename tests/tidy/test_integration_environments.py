"""Environments of frameworks: what belongs into them, where it comes from, what counts as well."""

import sys
from pathlib import Path

import pytest

from tests.integrations import environments, running
from tests.integrations.__main__ import main
from tests.integrations.environments import TABLE, Environment, Framework, named, python_of
from tests.integrations.installing import flags, settings
from tests.tidy.source import ROOT


@pytest.mark.parametrize("framework", TABLE)
def test_the_lowest_edge_pins_each_package_of_the_extra(framework):
    names = environments.packages(framework)
    assert names
    pins = [line.partition("==")[0] for line in Environment(framework, "lowest").requirements()]
    assert set(names) <= set(pins)


@pytest.mark.parametrize("framework", TABLE)
def test_each_framework_has_a_folder_of_tests(framework):
    assert list((ROOT / "tests" / "integrations" / framework).glob("test_*.py"))


def test_a_name_is_a_framework_and_an_edge():
    assert named("openai_agents-lowest") == Environment("openai_agents", "lowest")
    for wrong in ("openai_agents", "openai_agents-middle", "nobody-lowest", ""):
        with pytest.raises(ValueError, match="http-lowest"):
            named(wrong)


def test_an_environment_that_is_not_there_says_how_to_make_it(monkeypatch, tmp_path):
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    with pytest.raises(FileNotFoundError, match=r"python -m tests\.integrations env mcp-newest"):
        python_of("mcp", "newest")


def test_an_environment_is_made_again_when_its_line_changes(monkeypatch, tmp_path):
    monkeypatch.setattr(environments, "FOLDER", tmp_path)
    environment = Environment("mcp", "newest")
    before = environment.digest()
    assert environment.installed() is None
    environment.folder.mkdir()
    environment.stamp.write_text(
        f'{{"digest": "{before}", "seconds": 1, "versions": {{"mcp": "2"}}}}'
    )
    assert environment.versions() == {"mcp": "2"}

    monkeypatch.setattr(environments, "TABLE", {"mcp": Framework("mcp", tests=("more",))})
    assert environment.digest() != before
    assert environment.installed() is None


def test_uv_is_told_what_pip_is_told():
    listed = """\
global.cert='/certs.pem'
global.extra-index-url='file:///one file:///two'
global.find-links='\\n/a\\n/b'
global.index-url='file:///global'
global.timeout='60'
install.index-url='file:///install'
:env:.no-index='1'
"""
    assert settings(listed) == {
        "SSL_CERT_FILE": "/certs.pem",
        "UV_INDEX": "file:///one file:///two",
        "UV_FIND_LINKS": "/a,/b",
        "UV_DEFAULT_INDEX": "file:///install",
    }
    assert flags(listed) == ["--no-index"]
    assert settings("") == {}
    assert flags("global.no-index='false'") == flags("") == []


@pytest.fixture
def here(monkeypatch, tmp_path):
    """A framework that needs nothing: its environment is the one of this process."""
    (tmp_path / "venvs").mkdir()
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "venvs")
    monkeypatch.setattr(Environment, "python", Path(sys.executable))
    monkeypatch.setattr(running, "HERE", tmp_path)
    monkeypatch.setattr(running, "MODULES", tmp_path / "venvs")
    tests = tmp_path / "mcp"
    tests.mkdir()
    (tmp_path / "mypy.ini").write_text("[mypy]\nstrict = True\n")
    return tests


def ended(tests: Path, edge: environments.Edge = "lowest") -> tuple[int, int, int, bool]:
    tested = running.run_tests(Environment("mcp", edge), [f"--rootdir={tests}"], live=False)
    return tested.passed, tested.failed, tested.skipped, tested.well


def test_what_passes_is_well(here):
    (here / "test_it.py").write_text("def test_it(): pass\n")
    assert ended(here) == (1, 0, 0, True)


def test_one_failure_is_not_well(here):
    (here / "test_it.py").write_text("def test_a(): pass\ndef test_b(): assert 0\n")
    assert ended(here) == (1, 1, 0, False)


def test_no_test_is_not_well(here):
    assert ended(here) == (0, 0, 0, False)
    (here / "test_it.py").write_text("import pytest\n@pytest.mark.skip\ndef test_it(): pass\n")
    assert ended(here) == (0, 0, 1, False)


def test_a_module_that_cannot_be_imported_is_not_well(here):
    (here / "test_it.py").write_text("import nowhere_to_be_found\n")
    passed, failed, _, well = ended(here)
    assert (passed, failed, well) == (0, 1, False)


def test_types_count_at_the_newest_edge(here):
    (here / "test_it.py").write_text("def test_it(): pass\n")
    (running.MODULES / "mcp.py").write_text("def double(x: int) -> str:\n    return x * 2\n")
    assert ended(here, "lowest")[-1]
    assert not ended(here, "newest")[-1]
    (running.MODULES / "mcp.py").write_text("def double(x: int) -> int:\n    return x * 2\n")
    assert ended(here, "newest")[-1]


def test_an_unknown_framework_is_refused(capsys):
    assert main(["run", "nobody"]) == 2
    assert "no framework nobody" in capsys.readouterr().err
