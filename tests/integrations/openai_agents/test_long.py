"""A conversation of 500 turns: each message is kept once, and the end costs what the beginning did."""

from __future__ import annotations

import json
from typing import Any

import pytest
from agents import Agent, Model, ModelResponse, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage

import holdfast
from holdfast import flow
from holdfast.errors import RunFailed
from tests.integrations.openai_agents.made import keys

TURNS = 500


def words(number: int) -> str:
    """About a kilobyte, no two alike."""
    return " ".join(f"{number * 7919 + place * 104729:x}" for place in range(150))


class Talk(Model):
    """Says and asks for something in each turn; the conversation tells it which turn it is."""

    def __init__(self, end: int) -> None:
        self.end = end

    async def get_response(self, *args: Any, **kwargs: Any) -> Any:
        items = kwargs["input"] if "input" in kwargs else args[1]
        turn = sum(1 for it in items if it.get("type") == "function_call_output")
        if turn == self.end:
            raise ConnectionError("the process is in trouble")
        return self._said(turn)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _said(self, turn: int) -> ModelResponse:
        text = {"type": "output_text", "text": words(turn), "annotations": []}
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


def talk_until(end: int, length: list[int]) -> Any:
    @function_tool
    def look(n: int) -> str:
        return words(TURNS + n)

    agent = Agent(name="talker", instructions="Talk.", model=Talk(end), tools=[look])

    @flow(name="long")
    async def play() -> int:
        result = await Runner.run(agent, "Go on.", max_turns=TURNS + 2)
        length.append(len(json.dumps(result.to_input_list())))
        return len(result.raw_responses)

    return play


@pytest.mark.timeout(900)
def test_500_turns_cost_what_their_messages_are_long(go, tmp_path):
    sizes: list[int] = []
    length: list[int] = []
    for end in (0, TURNS // 2, TURNS + 1):
        with holdfast.open(f"sqlite:///{tmp_path}/runs.db") as store:
            play = talk_until(end, length)
            if end <= TURNS:
                with pytest.raises(RunFailed, match="trouble"):
                    go(play.run("r"), 400)
            else:
                assert go(play.run("r"), 400) == TURNS + 1
                assert len([it for it in keys(store, "r") if "look" in it]) == TURNS
        sizes.append(sum(it.stat().st_size for it in tmp_path.iterdir()))
    start, half, whole = sizes
    assert whole - start <= 2 * length[0], ((whole - start) / length[0], sizes)
    assert whole - half <= 1.5 * (half - start), sizes
