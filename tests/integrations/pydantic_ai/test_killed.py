from pathlib import Path

import pytest

from holdfast.testing import FakeModelServer
from tests.integrations.harness import SCRIPT, Agent
from tests.integrations.pydantic_ai.support import keys

AGENT = "tests.integrations.pydantic_ai.agent"


def is_model(step) -> bool:
    return step.name == "model"


def test_undisturbed(tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        life = Agent(AGENT, tmp_path / "a", server).check_undisturbed(is_model)
    assert set(keys(life.steps)) == {
        "model:support",
        "lookup_order:call_a",
        "check_stock:call_b",
        "ask:refund call_c:approval",
        "refund:call_c",
        "model:support#2",
    }


# Some twenty kills, and each life imports a framework.
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["entry", "ended"])
def test_killed_everywhere(tmp_path: Path, kind: str) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(AGENT, tmp_path / "a", server)
        assert agent.check_killed_everywhere(is_model, kinds=kind) >= 5
