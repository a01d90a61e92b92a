"""Outside a run an agent with the capability is the agent without it."""

import asyncio
from pathlib import Path

import pytest
from pydantic_ai import Agent, DeferredToolRequests, Tool
from pydantic_ai.models.test import TestModel

from holdfast.integrations.pydantic_ai import Durable
from holdfast.testing import CallTools, FakeModelServer, Say
from tests.integrations.pydantic_ai.support import durable


def lookup(order: str) -> str:
    return f"order {order}: a lamp"


def test_nothing_is_recorded_and_no_store_is_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with FakeModelServer(
        [CallTools(("lookup", {"order": "42"}, "call_a")), Say("A lamp.")]
    ) as server:

        async def work() -> str:
            agent = durable(server, lookup)
            return (await agent.run("What is it?")).output

        assert asyncio.run(work()) == "A lamp."
        assert server.count == 2
    assert list(tmp_path.iterdir()) == []


def test_streams_are_those_of_the_provider() -> None:
    with FakeModelServer([Say("one two three")]) as server:

        async def work() -> list[str]:
            async with durable(server).run_stream("Count") as result:
                return [it async for it in result.stream_text(delta=True, debounce_by=None)]

        seen = asyncio.run(work())
    assert "".join(seen) == "one two three"
    assert len(seen) > 1


def test_calls_that_need_approval_are_left_to_the_caller() -> None:
    agent = Agent(
        TestModel(),
        name="support",
        tools=[Tool(lookup, requires_approval=True)],
        output_type=[str, DeferredToolRequests],
        capabilities=[Durable()],
    )
    output = asyncio.run(agent.run("What is it?")).output
    assert isinstance(output, DeferredToolRequests)
    assert [call.tool_name for call in output.approvals] == ["lookup"]
