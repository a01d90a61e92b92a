"""Killed with the lowest release that is supported, resumed with the newest; and on PostgreSQL."""

from pathlib import Path

import pytest

from holdfast.testing import FakeModelServer
from tests.integrations.environments import python_of
from tests.integrations.harness import SCRIPT, Agent
from tests.integrations.openai_agents.test_killed import is_model, of


@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ["awaited", "streamed"])
def test_a_run_that_an_older_release_began_is_resumed(tmp_path: Path, mode: str) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = of(tmp_path / "a", server, "responses", mode)
        first = agent.life("ended:4", python=str(python_of("openai_agents", "lowest")))
        assert first.was_killed, first.output
        assert first.recorded(is_model) == 1
        assert (
            first.recorded(lambda it: it.key in {"lookup_order:call_a", "check_stock:call_b"}) == 2
        )
        again = agent.life(python=str(python_of("openai_agents", "newest")))
        assert again.code == 0, again.output
        assert "RESULT Order 42 is refunded." in again.output
        assert again.requests == 2
        assert len(again.charges) == 1
        assert server.problems == []


@pytest.mark.timeout(1800)
def test_killed_at_each_entry_on_postgresql(tmp_path: Path, postgres_server) -> None:
    class OnPostgres(Agent):
        """Each kill begins with an empty database."""

        def _clear(self) -> None:
            super()._clear()
            self.url = postgres_server.url(postgres_server.borrow())

    with FakeModelServer(SCRIPT) as server:
        agent = OnPostgres(
            "tests.integrations.openai_agents.agent",
            tmp_path / "a",
            server,
            store=postgres_server.url(postgres_server.borrow()),
            environ={"API": "responses", "MODE": "awaited"},
        )
        assert agent.check_killed_everywhere(is_model, kinds="entry") > 5
