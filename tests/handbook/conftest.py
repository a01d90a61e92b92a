from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.handbook.world import World
from tests.ops.prompt import Prompt


@pytest.fixture(scope="session")
def prompt() -> Iterator[Prompt]:
    prompt = Prompt()
    yield prompt
    prompt.close()


@pytest.fixture
def world(tmp_path: Path, request: pytest.FixtureRequest, prompt: Prompt) -> Iterator[World]:
    """The situation of the page that is named like the test module."""
    name = request.path.stem.removeprefix("test_").replace("_", "-")
    world = World(tmp_path, name, prompt)
    yield world
    world.close()
    if request.node.stash.get(FAILED, False) is False:
        assert not world.page.left, "these commands of the page were not tried"


FAILED = pytest.StashKey[bool]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Remember that a test failed: then it is clear why not all commands were tried."""
    outcome = yield
    report = outcome.get_result()  # type: ignore[attr-defined]
    if report.when == "call" and report.failed:
        item.stash[FAILED] = True
