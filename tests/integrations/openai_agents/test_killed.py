"""The agent of the harness, undisturbed and killed everywhere: both protocols, awaited, streamed and
blocking."""

import itertools
from pathlib import Path

import pytest

from holdfast.testing import ModelServer
from tests.integrations.harness import SCRIPT, Agent

WAYS = list(itertools.product(("responses", "chat"), ("awaited", "streamed", "sync")))


def is_model(step) -> bool:
    return step.name == "model"


def of(folder: Path, server: ModelServer, api: str, mode: str, **more) -> Agent:
    environ = {"API": api, "MODE": mode}
    return Agent("tests.integrations.openai_agents.agent", folder, server, environ=environ, **more)


@pytest.mark.parametrize(("api", "mode"), WAYS)
def test_undisturbed(tmp_path: Path, api: str, mode: str) -> None:
    with ModelServer(SCRIPT) as server:
        life = of(tmp_path / "a", server, api, mode).check_undisturbed(is_model)
        assert [it.key for it in life.steps if is_model(it)] == ["model:support", "model:support#2"]
        assert server.counts == {api: 2}


# Where a kill strikes does not depend on the protocol: each way of running is killed with one.
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("api", "mode"), [("responses", "awaited"), ("chat", "streamed"), ("responses", "sync")]
)
def test_killed_everywhere(tmp_path: Path, api: str, mode: str) -> None:
    with ModelServer(SCRIPT) as server:
        assert of(tmp_path / "a", server, api, mode).check_killed_everywhere(is_model) > 10
