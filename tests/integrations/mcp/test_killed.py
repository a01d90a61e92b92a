from pathlib import Path

import pytest

from holdfast.testing import ModelServer
from tests.integrations.harness import SCRIPT, Agent

AGENT = "tests.integrations.mcp.agent"


def is_model(step) -> bool:
    return step.name == "model"


def test_undisturbed(tmp_path: Path) -> None:
    with ModelServer(SCRIPT) as server:
        life = Agent(AGENT, tmp_path / "a", server).check_undisturbed(is_model)
    others = [step.key for step in life.steps if not is_model(step)]
    assert sorted(key for key in others if ":call_" not in key) == ["ask:refund", "tool_hints:mcp"]


# Each life imports the SDK twice, in the agent and in the server of its tools.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["entry", "ended"])
def test_killed_everywhere(tmp_path: Path, kind: str) -> None:
    with ModelServer(SCRIPT) as server:
        agent = Agent(AGENT, tmp_path / "a", server)
        assert (
            agent.check_killed_everywhere(is_model, kinds=kind) >= {"entry": 15, "ended": 5}[kind]
        )
