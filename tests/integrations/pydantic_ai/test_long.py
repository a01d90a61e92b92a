"""A conversation of 500 turns: what it costs grows with what is said, and not faster."""

import asyncio
from pathlib import Path

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast import flow
from holdfast.integrations.pydantic_ai import Durable

TURNS = 500
ASKED = "What do you think about lamp number {}? " + "It stands in the hall. " * 43
SAID = "I think that lamp number {} is fine. " + "It gives a warm light. " * 43


def stored(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


@pytest.mark.timeout(600)
def test_bytes_grow_with_the_messages(tmp_path: Path) -> None:
    def say(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(SAID.format(len(messages)))])

    agent = Agent(FunctionModel(say), name="support", capabilities=[Durable()])
    sizes: list[int] = []

    @flow
    async def talk() -> bytes:
        history: list[ModelMessage] = []
        for turn in range(TURNS):
            result = await agent.run(ASKED.format(turn), message_history=history)
            history = result.all_messages()
            if turn in (TURNS // 2 - 1, TURNS - 1):
                sizes.append(stored(tmp_path))
        return b""  # The messages are not stored once more.

    with holdfast.open(f"sqlite:///{tmp_path}/runs.db") as store:
        sizes.append(stored(tmp_path))
        asyncio.run(talk.run("r-1"))
        steps = store.get("r-1").steps
        assert len(steps) == TURNS
        assert {step.name for step in steps} == {"model"}
    messages = [ModelResponse(parts=[TextPart(SAID.format(0))])]
    one = len(ModelMessagesTypeAdapter.dump_json(messages)) + len(ASKED)
    empty, half, full = sizes
    said = TURNS * one
    assert full - empty <= 2 * said, (full - empty, said)
    assert full - half <= 1.5 * (half - empty), sizes
