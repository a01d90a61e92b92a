"""The agent of the harness on a thread with checkpoints, killed everywhere: at entries of the run, in
calls, and between checkpoints. What the journal has and what the checkpoints have never disagree."""

import itertools
from pathlib import Path
from typing import Any

import pytest

from holdfast.testing import FakeModelServer
from tests.integrations.harness import SCRIPT, Agent

AGENT = "tests.integrations.langgraph.thread_agent"


def is_model(step: Any) -> bool:
    return bool(step.name == "model")


@pytest.mark.parametrize("awaits", ["", "1"], ids=["sync", "async"])
def test_undisturbed(tmp_path: Path, awaits: str) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(AGENT, tmp_path / "a", server, environ={"ASYNC": awaits})
        life = agent.check_undisturbed(is_model)
        assert [it.key for it in life.steps if is_model(it)] == ["model:agent-1", "model:agent-4"]


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kinds", ["entry ended", "put writes"])
def test_killed_everywhere(tmp_path: Path, kinds: str) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(AGENT, tmp_path / "a", server)
        assert agent.check_killed_everywhere(is_model, kinds=kinds) > 10


@pytest.mark.timeout(900)
def test_an_async_graph_killed_at_every_entry(tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(AGENT, tmp_path / "a", server, environ={"ASYNC": "1"})
        assert agent.check_killed_everywhere(is_model, kinds="entry") > 5


@pytest.mark.timeout(600)
def test_killed_again_and_again_on_a_server(postgres_url: str, tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(AGENT, tmp_path / "a", server, store=postgres_url)
        killed = [agent.life(kill) for kill in ("entry:3", "entry:3", "ended:1")]
        assert all(it.was_killed for it in killed)
        life = agent.life()
        assert life.code == 0, life.output
        for before, after in itertools.pairwise([*killed, life]):
            asked, open_yet = after.requests - before.requests, 2 - before.recorded(is_model)
            assert asked <= open_yet, "nothing that was recorded is asked again"
        assert asked == open_yet
        assert life.recorded(is_model) == 2
        assert len(life.charges) == 1
        assert server.problems == []
