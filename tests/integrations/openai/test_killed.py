"""The agent in each manner, undisturbed and killed everywhere."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import FakeModelServer
from tests.integrations.harness import SCRIPT, Agent

MODULE = "tests.integrations.openai.agent"
VARIANTS = ["chat", "async_chat", "responses", "runner", "async_runner"]
KILLED = ["chat", "runner", "async_runner"]


def is_model(step: Any) -> bool:
    return step.name == "http"


@pytest.mark.parametrize("variant", VARIANTS)
def test_undisturbed(variant: str, tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(MODULE, tmp_path / "a", server, environ={"VARIANT": variant})
        agent.check_undisturbed(is_model)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("variant", KILLED)
def test_killed_everywhere(variant: str, tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(MODULE, tmp_path / "a", server, environ={"VARIANT": variant})
        assert agent.check_killed_everywhere(is_model) > 10
