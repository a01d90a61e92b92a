from pathlib import Path

from holdfast.testing import FakeModelServer
from tests.integrations.harness import SCRIPT, Agent


def is_model(step) -> bool:
    return step.name == "model"


def test_undisturbed(tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        Agent("tests.integrations.plain.agent", tmp_path / "a", server).check_undisturbed(is_model)


def test_killed_everywhere(tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent("tests.integrations.plain.agent", tmp_path / "a", server)
        assert agent.check_killed_everywhere(is_model) > 10
