"""500 turns with Anthropic's SDK."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx2
import pytest
from anthropic import Anthropic

from tests.integrations.growing import check_growth, said, tools


def answer(number: int, _asked: dict[str, Any]) -> dict[str, Any]:
    text = {"type": "text", "text": said(number)}
    call = {"type": "tool_use", "id": f"toolu_{number}", "name": "search"}
    content = [text, {**call, "input": {"number": number}}]
    about = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "test"}
    ended = {"stop_reason": "tool_use", "stop_sequence": None}
    return {**about, **ended, "content": content, "usage": {"input_tokens": 1, "output_tokens": 1}}


def loop(client: httpx2.Client, turns: int) -> list[dict[str, Any]]:
    anthropic = Anthropic(base_url="https://model.test", api_key="test", http_client=client)
    messages: Any = [{"role": "user", "content": "Go on."}]
    for _ in range(turns):
        reply = anthropic.messages.create(
            model="test", max_tokens=99, messages=messages, tools=tools.anthropic
        )
        messages.append({"role": "assistant", "content": reply.to_dict()["content"]})
        messages.append(tools.answer_messages(reply))
    return messages


@pytest.mark.timeout(300)
def test_500_turns_of_messages(tmp_path: Path) -> None:
    check_growth(tmp_path, answer, loop)
