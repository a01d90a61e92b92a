"""A worker is killed in the middle of a thread; another one finds the thread and resumes it."""

from pathlib import Path
from typing import Any

import pytest

import holdfast
from holdfast.testing import FakeModelServer
from tests.integrations.harness import SCRIPT, Agent
from tests.integrations.langgraph.agent import task


def is_model(step: Any) -> bool:
    return bool(step.name == "model")


@holdfast.flow
def support(input: Any, thread_id: str | None = None) -> Any:
    """Stands for the flow of the worker, which is loaded there alone."""
    raise NotImplementedError


@pytest.mark.parametrize("kill", ["entry:4", "ended:2", "entry:9"])
def test_a_worker_resumes_what_another_one_left(tmp_path: Path, kill: str) -> None:
    with FakeModelServer(SCRIPT) as server:
        agent = Agent("tests.integrations.langgraph.worker_agent", tmp_path / "a", server)
        with holdfast.open(agent.url, default=False) as store:
            support.with_options(store=store).submit(agent.run_id, task())
        first = agent.life(kill)
        assert first.was_killed, first.output
        again = agent.life()
        assert again.code == 0, again.output
        agent._check_end(again)
        assert again.requests == 2 + (first.requests - first.recorded(is_model))
        paid_again = again.begun["refund"] - first.begun["refund"]
        assert paid_again == (0 if first.charges else 1)
        assert sum(it.kind == "run_claimed" for it in agent.history()) >= 2
