"""A conversation of 500 turns: what it costs grows with what is said, and not faster."""

import asyncio
import contextlib
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ModelMessagesTypeAdapter, ModelResponse, TextPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import holdfast
from holdfast import flow
from holdfast.errors import RunFailed
from holdfast.integrations.pydantic_ai import Durable

TURNS = 500


def said(number: int) -> str:
    """About a kilobyte, no two alike."""
    return " ".join(f"{number * 7919 + place * 104729:x}" for place in range(150))


def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
    return ModelResponse(parts=[TextPart(said(len(messages)))])


def talk_until(end: int, history: list[ModelMessage]) -> Any:
    agent = Agent(FunctionModel(answer), name="support", capabilities=[Durable()])

    @flow(name="talk")
    async def talk() -> None:
        for turn in range(TURNS):
            if turn == end:
                raise ConnectionError("the process is in trouble")
            result = await agent.run(said(2 * turn), message_history=history)
            history[:] = result.all_messages()

    return talk


@pytest.mark.timeout(600)
def test_500_turns_cost_what_they_say(tmp_path: Path) -> None:
    sizes: list[int] = []
    for end in (0, TURNS // 2, TURNS):
        history: list[ModelMessage] = []
        with holdfast.open(f"sqlite:///{tmp_path}/runs.db", default=False) as store:
            talk = talk_until(end, history).with_options(store=store)
            with pytest.raises(RunFailed) if end < TURNS else contextlib.nullcontext():
                asyncio.run(talk.run("r-1"))
            assert len([it for it in store.get("r-1").steps if it.name == "model"]) == end
        sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
    begun, middle, whole = sizes
    messages = len(ModelMessagesTypeAdapter.dump_json(history))
    assert whole - begun <= 2 * messages, (sizes, messages)
    assert whole - middle <= 1.5 * (middle - begun), sizes
