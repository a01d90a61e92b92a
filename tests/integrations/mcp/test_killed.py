import asyncio
import os
import sys
from pathlib import Path

import pytest
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

import holdfast
from holdfast import aio
from holdfast.errors import RunHeld
from holdfast.integrations.mcp import durable
from holdfast.testing import FakeModelServer
from tests.integrations.environments import python_of
from tests.integrations.harness import ANSWER, SCRIPT, Agent

AGENT = "tests.integrations.mcp.agent"


def is_model(step) -> bool:
    return step.name == "model"


def test_undisturbed(tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        life = Agent(AGENT, tmp_path / "a", server).check_undisturbed(is_model)
    others = [step.key for step in life.steps if not is_model(step)]
    hinted = [
        f"tool_hints.{call}" for call in ("check_stock:mcp.call_b", "lookup_order:mcp.call_a")
    ]
    assert sorted(key for key in others if ":call_" not in key) == ["ask:refund", *hinted]


# Each life imports the SDK twice, in the agent and in the server of its tools.
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["entry", "ended"])
def test_killed_everywhere(tmp_path: Path, kind: str) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(AGENT, tmp_path / "a", server)
        assert (
            agent.check_killed_everywhere(is_model, kinds=kind) >= {"entry": 10, "ended": 5}[kind]
        )


@pytest.mark.timeout(300)
@pytest.mark.parametrize("kill", ["entry:6", "entry:8", "ended:3"])
def test_resumed_with_the_newest_version_of_the_sdk(tmp_path: Path, kill: str) -> None:
    lowest, newest = (str(python_of("mcp", edge)) for edge in ("lowest", "newest"))
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(AGENT, tmp_path / "a", server)
        first = agent.life(kill, python=lowest)
        assert first.was_killed, first.output
        again = agent.life(python=newest)
        assert again.code == 0, again.output
        assert f"RESULT {ANSWER}" in again.output
        assert again.requests - first.requests == 2 - first.recorded(is_model)
        assert len(again.charges) == 1


@pytest.mark.timeout(300)
def test_another_prompt_on_resume_is_held_as_diverged(tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(AGENT, tmp_path / "a", server)
        assert agent.life("entry:6").was_killed
        agent.environ["PROMPT"] = " Be quick."
        again = agent.life()
        assert again.code != 0
        assert "diverged" in again.output
        with agent.opened() as store:
            assert store.get(agent.run_id).held_reason == "diverged"


@pytest.mark.timeout(600)
def test_killed_again_and_again_on_a_server(postgres_url: str, tmp_path: Path) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent(AGENT, tmp_path / "a", server, store=postgres_url)
        kills = 0
        while (life := agent.life("entry:3")).was_killed:
            kills += 1
        assert kills > 2
        assert life.code == 0, life.output
        assert life.recorded(is_model) == life.requests == 2
        assert len(life.charges) == 1
        assert server.problems == []


MORTAL = """
import os
from mcp.server.mcpserver import MCPServer
mortal = MCPServer("mortal", log_level="ERROR")

@mortal.tool()
def pay(amount: int) -> str:
    os._exit(1)

mortal.run("stdio")
"""


def test_a_server_that_dies_in_a_call_leaves_the_effect_in_doubt(tmp_path: Path) -> None:
    (tmp_path / "mortal.py").write_text(MORTAL)
    served = StdioServerParameters(
        command=sys.executable, args=[str(tmp_path / "mortal.py")], env=dict(os.environ)
    )

    async def work() -> None:
        async with aio.run("r"), durable(Client(stdio_client(served))) as client:
            await client.call_tool("pay", {"amount": 3}, call_id="c1")

    with holdfast.open("memory:") as store:
        with pytest.raises(RunHeld) as held:
            asyncio.run(work())
        assert (held.value.reason, held.value.step) == ("in_doubt", "pay:c1")
        assert store.get("r").status == "held"
