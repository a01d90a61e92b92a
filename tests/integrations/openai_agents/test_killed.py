"""The agent of the harness, undisturbed and killed everywhere: both protocols, awaited, streamed and
blocking."""

import itertools
from pathlib import Path

import pytest

from holdfast.testing import FakeModelServer
from tests.integrations.harness import SCRIPT, Agent

WAYS = list(itertools.product(("responses", "chat"), ("awaited", "streamed", "sync")))


def is_model(step) -> bool:
    return step.name == "model"


def of(folder: Path, server: FakeModelServer, api: str, mode: str, **more) -> Agent:
    environ = {"API": api, "MODE": mode}
    return Agent("tests.integrations.openai_agents.agent", folder, server, environ=environ, **more)


@pytest.mark.parametrize(("api", "mode"), WAYS)
def test_undisturbed(tmp_path: Path, api: str, mode: str) -> None:
    with FakeModelServer(SCRIPT) as server:
        life = of(tmp_path / "a", server, api, mode).check_undisturbed(is_model)
        assert [it.key for it in life.steps if is_model(it)] == ["model:support", "model:support#2"]
        assert server.counts == {api: 2}


# Where a kill strikes does not depend on the protocol: each way of running is killed with one. The
# blocking one records what the awaited one does; it is killed where the calls themselves differ.
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("api", "mode", "kinds", "least"),
    [
        ("responses", "awaited", "entry ended", 10),
        ("chat", "streamed", "entry ended", 10),
        ("responses", "sync", "ended", 4),
    ],
)
def test_killed_everywhere(tmp_path: Path, api: str, mode: str, kinds: str, least: int) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = of(tmp_path / "a", server, api, mode)
        assert agent.check_killed_everywhere(is_model, kinds=kinds) > least
