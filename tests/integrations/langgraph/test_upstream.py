"""LangGraph's own tests, with `HoldfastSaver` and `HoldfastStore` in the place of its savers and stores.

Of langgraph and langgraph-prebuilt: all tests with a fixture of a checkpointer or a store, on SQLite
files. Of langgraph-checkpoint: the tests of the store. `upstream_differences.toml` lists what differs;
the reasons stand in docs/integrations/langgraph.md.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.integrations import upstream

HERE = Path(__file__).parent
DIFFERENCES = upstream.differences(HERE)["difference"]
FIXTURES = ("sync_checkpointer", "sync_store")
CALLED = {
    "langgraph": ("HoldfastSaver.put", "HoldfastSaver.get_tuple", "HoldfastStore.abatch"),
    "langgraph-checkpoint": ("HoldfastStore.batch", "HoldfastStore.abatch"),
    "langgraph-prebuilt": ("HoldfastSaver.put", "HoldfastSaver.get_tuple"),
}
BY_NAME = ["tests/test_store.py"]


def unpacked(package: str, folder: Path) -> Path:
    """A copy of the suite, with our fixtures and without the package itself, which is installed."""
    source, suite = upstream.source_of(package), folder / "suite"
    shutil.copytree(source / "tests", suite / "tests")
    shutil.copy(HERE / "upstream_fixtures.py", suite / "tests" / "conftest.py")
    (suite / "pytest.ini").write_text("[pytest]\n")
    return suite


def chosen(package: str, suite: Path) -> list[str]:
    if package == "langgraph-checkpoint":
        return BY_NAME
    files = sorted((suite / "tests").glob("test_*.py"))
    using = [it for it in files if any(name in it.read_text() for name in FIXTURES)]
    return [f"tests/{it.name}" for it in using if it.name != "test_prune_postgres.py"]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("package", CALLED)
def test_the_suite_of_a_package_fails_only_where_we_say_so(package: str, tmp_path: Path) -> None:
    suite = unpacked(package, tmp_path)
    of_package = [it for it in DIFFERENCES if it["package"] == package]
    by_name = "1" if package == "langgraph-checkpoint" else ""
    outcome = upstream.check(
        suite, tmp_path, chosen(package, suite), of_package, BIND_BY_NAME=by_name
    )
    assert len(outcome.passed) > 5
    for call in CALLED[package]:
        assert outcome.calls[call] > 0, call


def test_the_differences_are_told_to_users() -> None:
    upstream.check_page("langgraph.md", DIFFERENCES)
