"""A conversation of 500 turns: each message is kept once, and the end costs what the beginning did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage

from holdfast import flow
from tests.integrations.openai_agents.made import keys

TURNS = 500


class Talk(Model):
    """Says and asks for something in each turn; the conversation tells it which turn it is."""

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        items = kwargs["input"] if "input" in kwargs else args[1]
        outputs = [it for it in items if it.get("type") == "function_call_output"]
        return self._said(len(outputs))

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _said(self, turn: int) -> ModelResponse:
        text = {"type": "output_text", "text": f"{turn} " + "thinking " * 50, "annotations": []}
        said = ResponseOutputMessage.construct(
            id=f"msg_{turn}",
            type="message",
            role="assistant",
            status="completed",
            content=[text],
        )
        call = ResponseFunctionToolCall(
            id=f"fc_{turn}",
            type="function_call",
            call_id=f"call_{turn}",
            name="look",
            arguments=json.dumps({"n": turn}),
            status="completed",
        )
        output = [said] if turn == TURNS else [said, call]
        return ModelResponse(output=output, usage=Usage(requests=1), response_id=None)


@pytest.mark.timeout(900)
def test_500_turns_cost_what_their_messages_are_long(store, go, tmp_path):
    sizes = [_bytes(tmp_path)]
    length = [0]

    @function_tool
    def look(n: int) -> str:
        if n == TURNS // 2:
            sizes.append(_bytes(tmp_path))
        return f"{n}: " + "what was found there " * 25

    agent = Agent(name="talker", instructions="Talk.", model=Talk(), tools=[look])

    @flow(name="long")
    async def play() -> int:
        result = await Runner.run(agent, "Go on.", max_turns=TURNS + 2)
        length[0] = len(json.dumps(result.to_input_list()))
        return len(result.raw_responses)

    assert go(play.run("r"), 800) == TURNS + 1
    sizes.append(_bytes(tmp_path))
    assert len(keys(store, "r")) == 2 * TURNS + 1
    start, half, end = sizes
    assert end - start <= 2 * length[0], (end - start) / length[0]
    assert end - half <= 1.5 * (half - start), sizes


def _bytes(folder: Path) -> int:
    """The size of the database and of what is still in its log."""
    files = [it for it in folder.iterdir() if it.name in {"runs.db", "runs.db-wal"}]
    return sum(it.stat().st_size for it in files)
