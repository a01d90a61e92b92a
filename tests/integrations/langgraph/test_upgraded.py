"""Killed under the lowest supported versions, resumed under the newest: the run goes on."""

from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import FakeModelServer
from tests.integrations.environments import python_of
from tests.integrations.harness import SCRIPT, Agent

MODULES = ("tests.integrations.langgraph.agent", "tests.integrations.langgraph.thread_agent")


def is_model(step: Any) -> bool:
    return bool(step.name == "model")


@pytest.mark.timeout(300)
@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize("kill", ["entry:4", "ended:3"])
def test_upgraded_between_crash_and_resume(
    tmp_path: Path, module: str, kill: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two environments are loaded from disk, which takes its time on a machine that is busy.
    monkeypatch.setattr("tests.integrations.harness.PATIENCE_S", 140.0)
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(module, tmp_path / "a", server)
        first = agent.life(kill, python=str(python_of("langgraph", "lowest")))
        assert first.was_killed, first.output
        again = agent.life(python=str(python_of("langgraph", "newest")))
        assert again.code == 0, again.output
        agent._check_end(again)
        assert again.requests == 2 + first.requests - first.recorded(is_model)
