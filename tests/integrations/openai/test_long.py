"""500 turns with OpenAI's SDK: chat completions and responses.

The conversation is given in `extra_body`: elsewhere the SDK looks through all of it again by its types at
each turn, which takes minutes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import OpenAI

from tests.integrations.growing import check_growth, said, tools


def made(client: httpx2.Client) -> OpenAI:
    return OpenAI(base_url="https://model.test/v1", api_key="test", http_client=client)


def chat_answer(number: int, _asked: dict[str, Any]) -> dict[str, Any]:
    function = {"name": "search", "arguments": json.dumps({"number": number})}
    call = {"id": f"call_{number}", "type": "function", "function": function}
    message = {"role": "assistant", "content": said(number), "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    about = {"id": f"chat_{number}", "object": "chat.completion", "created": 1, "model": "test"}
    return {**about, "choices": [choice]}


def chat(client: httpx2.Client, turns: int) -> list[dict[str, Any]]:
    messages: Any = [{"role": "user", "content": "Go on."}]
    openai = made(client)
    for _ in range(turns):
        reply = openai.chat.completions.create(
            model="test", messages=[], tools=tools.openai, extra_body={"messages": messages}
        )
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        messages += tools.answer_chat(message)
    return messages


def responses_answer(number: int, _asked: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "output_text", "text": said(number), "annotations": []}
    message = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [text]}
    call = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
    call |= {"name": "search", "arguments": json.dumps({"number": number})}
    about = {"id": f"resp_{number}", "object": "response", "created_at": 1, "model": "test"}
    output = [{**message, "status": "completed"}, {**call, "status": "completed"}]
    return {**about, "status": "completed", "output": output}


def responses(client: httpx2.Client, turns: int) -> list[dict[str, Any]]:
    items: Any = [{"role": "user", "content": "Go on."}]
    openai = made(client)
    for _ in range(turns):
        response = openai.responses.create(
            model="test", tools=tools.responses, extra_body={"input": items}
        )
        items += [item.model_dump(exclude_none=True) for item in response.output]
        items += tools.answer_responses(response)
    return items


@pytest.mark.timeout(300)
def test_500_turns_of_chat(tmp_path: Path) -> None:
    check_growth(tmp_path, chat_answer, chat)


@pytest.mark.timeout(300)
def test_500_turns_of_responses(tmp_path: Path) -> None:
    check_growth(tmp_path, responses_answer, responses)
