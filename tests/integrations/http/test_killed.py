"""The agent of the harness: undisturbed, killed everywhere, changed, on another version."""

import sys
from pathlib import Path

import pytest

from holdfast.testing import FakeModelServer
from tests.integrations import environments
from tests.integrations.harness import SCRIPT, Agent

MODULE = "tests.integrations.http.agent"
VARIANTS = ["httpx-sync", "httpx-async", "httpx2-sync", "httpx2-async"]


def is_model(step) -> bool:
    return step.name == "http"


@pytest.mark.parametrize("variant", VARIANTS)
def test_undisturbed(variant: str, tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(MODULE, tmp_path / "a", server, environ={"VARIANT": variant})
        life = agent.check_undisturbed(is_model)
        keys = [step.key for step in life.steps if is_model(step)]
        assert keys == [
            "http:POST 127.0.0.1.v1.chat.completions",
            "http:POST 127.0.0.1.v1.chat.completions#2",
        ]
        with agent.opened() as store:
            bodies = [entry.body for entry in store.history(agent.run_id)]
        used = [body["usage"] for body in bodies if "usage" in body]
        assert [it["model"] for it in used] == ["test", "test"]
        assert all(it["input_tokens"] > 0 and it["output_tokens"] > 0 for it in used)


# The colours are killed everywhere in one library each; what differs between the libraries is no
# matter of where a process dies.
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("kind", "at_least"), [("entry", 7), ("ended", 5)])
@pytest.mark.parametrize("variant", ["httpx-sync", "httpx2-async"])
def test_killed_everywhere(variant: str, kind: str, at_least: int, tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(MODULE, tmp_path / "a", server, environ={"VARIANT": variant})
        assert agent.check_killed_everywhere(is_model, kinds=kind) >= at_least


@pytest.mark.timeout(400)
def test_killed_again_and_again_on_a_server(postgres_url: str, tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(MODULE, tmp_path / "a", server, store=postgres_url)
        kills = 0
        while (life := agent.life("entry:3")).was_killed:
            kills += 1
        assert kills > 2
        assert life.code == 0, life.output
        assert life.requests == 2
        assert life.recorded(is_model) == 2
        assert len(life.charges) == 1
        assert server.problems == []


def test_another_prompt_is_another_run(tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(MODULE, tmp_path / "a", server)
        assert agent.life("ended:2").was_killed
        agent.environ["PROMPT"] = "Refund order 43"
        life = agent.life()
        assert life.code == 1
        assert "diverged" in life.output
        assert "http:POST 127.0.0.1.v1.chat.completions with other arguments" in life.output
        with agent.opened() as store:
            assert store.get(agent.run_id).held_reason == "diverged"
        agent.environ["PROMPT"] = "Refund order 42"
        assert agent.life().code == 0


@pytest.mark.parametrize("variant", VARIANTS)
def test_killed_in_the_lowest_version_it_goes_on_in_the_newest(
    variant: str, tmp_path: Path
) -> None:
    lowest, newest = (str(environments.python_of("http", edge)) for edge in ("lowest", "newest"))
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(MODULE, tmp_path / "a", server, environ={"VARIANT": variant})
        first = agent.life("ended:2", python=lowest)
        assert first.was_killed
        assert first.recorded(is_model) == 1
        again = agent.life(python=newest)
        assert again.code == 0, again.output
        assert again.requests == 2
    assert sys.executable in (lowest, newest)
