"""Pydantic AI is upgraded between the crash and the resume, or goes back: the run goes on."""

from pathlib import Path

import pytest

from holdfast.testing import FakeModelServer
from tests.integrations.environments import python_of
from tests.integrations.harness import SCRIPT, Agent
from tests.integrations.pydantic_ai.test_killed import AGENT, is_model


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kill", ["entry:4", "entry:8", "ended:1", "ended:4"])
def test_a_run_of_the_lowest_version_goes_on_with_the_newest(tmp_path: Path, kill: str) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(AGENT, tmp_path / "a", server)
        first = agent.life(kill, python=str(python_of("pydantic_ai", "lowest")))
        assert first.was_killed, first.output
        again = agent.life(python=str(python_of("pydantic_ai", "newest")))
        assert again.code == 0, again.output
        assert "RESULT Order 42 is refunded." in again.output
        assert again.requests - first.requests == 2 - first.recorded(is_model)
        assert len(again.charges) == 1
        assert server.problems == []


@pytest.mark.timeout(600)
def test_a_run_of_the_newest_version_goes_back_to_the_lowest(tmp_path: Path) -> None:
    """The lowest does not ask for the id that the newest has recorded."""
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(AGENT, tmp_path / "a", server)
        first = agent.life("ended:4", python=str(python_of("pydantic_ai", "newest")))
        assert first.was_killed, first.output
        assert "uuid4:support" in {step.key for step in first.steps}
        again = agent.life(python=str(python_of("pydantic_ai", "lowest")))
        assert again.code == 0, again.output
        assert again.requests - first.requests == 2 - first.recorded(is_model)
        assert len(again.charges) == 1
