"""The agent of the harness, killed everywhere: in a plain flow, sync and async."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import FakeModelServer
from tests.integrations.harness import SCRIPT, Agent

AGENT = "tests.integrations.langgraph.agent"


def is_model(step: Any) -> bool:
    return bool(step.name == "model")


@pytest.fixture(params=["", "1"], ids=["sync", "async"])
def environ(request: Any) -> dict[str, str]:
    return {"ASYNC": request.param}


def test_undisturbed(tmp_path: Path, environ: dict[str, str]) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(AGENT, tmp_path / "a", server, environ=environ)
        life = agent.check_undisturbed(is_model)
        assert [it.key for it in life.steps if is_model(it)] == ["model:agent-1", "model:agent-3"]


@pytest.mark.timeout(600)
def test_killed_everywhere(tmp_path: Path, environ: dict[str, str]) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(AGENT, tmp_path / "a", server, environ=environ)
        assert agent.check_killed_everywhere(is_model) > 10
