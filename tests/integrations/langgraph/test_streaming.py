"""Tokens are seen while the model speaks; after a kill the recorded part comes as a whole, and the
rest as tokens."""

from pathlib import Path

import pytest

from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.harness import Agent
from tests.integrations.langgraph.stream_agent import SECOND

FIRST = "Let me look."
SCRIPT = [
    CallTools(("look", {"what": "lamp"}, "c1"), say=FIRST, pause=0.05),
    Say(SECOND, pause=0.05),
]


def messages(output: str) -> list[list[str]]:
    return [line.split(" ", 3)[1:] for line in output.splitlines() if line.startswith("MESSAGE")]


@pytest.mark.parametrize("awaits", ["", "1"], ids=["sync", "async"])
def test_tokens_live_then_replayed(tmp_path: Path, awaits: str) -> None:
    with FakeModelServer(SCRIPT) as server:
        module = "tests.integrations.langgraph.stream_agent"
        agent = Agent(module, tmp_path / "a", server, environ={"ASYNC": awaits, "DIE": "1"})
        first = agent.life()
        assert first.was_killed, first.output
        seen = messages(first.output)
        tokens = [text for kind, _, text in seen if kind == "AIMessageChunk"]
        assert "".join(tokens).startswith(FIRST)
        assert len(tokens) > 3
        # The first token came before its call was recorded: nobody waited for the whole answer.
        assert seen[0][1] == "0"
        assert seen[-1][1] == "1"
        assert server.count == 2

        agent.environ["DIE"] = ""
        again = agent.life()
        assert again.code == 0, again.output
        kinds = [(kind, text) for kind, _, text in messages(again.output)]
        assert kinds[0] == ("AIMessage", FIRST)
        assert kinds[1] == ("ToolMessage", "one lamp")
        rest = [text for kind, text in kinds[2:] if kind == "AIMessageChunk"]
        assert "".join(rest) == SECOND
        assert len(rest) > 2
        assert len(kinds) == len(rest) + 2
        updates = [line for line in again.output.splitlines() if line.startswith("UPDATE")]
        assert updates == ["UPDATE model", "UPDATE tools", "UPDATE model"]
        assert server.count == 3
        assert server.problems == []
