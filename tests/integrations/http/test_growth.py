"""A long conversation: what is kept grows with the messages, and no faster."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast
from holdfast import flow
from holdfast.errors import RunFailed
from holdfast.integrations.http import DurableTransport

TURNS = 500


def said(number: int) -> str:
    """About a kilobyte, no two alike."""
    return " ".join(f"{number * 7919 + place * 104729:x}" for place in range(150))


def answer(request: httpx.Request) -> httpx.Response:
    number = len(json.loads(request.content)["messages"])
    message = {"role": "assistant", "content": said(number)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    usage = {"prompt_tokens": 10 * number, "completion_tokens": 300}
    return httpx.Response(200, json={"model": "test", "choices": [choice], "usage": usage})


def talk_until(end: int, messages: list[dict[str, Any]]) -> Any:
    @flow(name="hg-talk")
    def talk() -> None:
        with httpx.Client(transport=DurableTransport(httpx.MockTransport(answer))) as client:
            for turn in range(TURNS):
                if turn == end:
                    raise RuntimeError("the process is in trouble")
                messages.append({"role": "user", "content": said(2 * turn)})
                body = {"model": "test", "messages": messages}
                response = client.post("https://model.test/v1/chat/completions", json=body)
                messages.append(response.json()["choices"][0]["message"])

    return talk


@pytest.mark.timeout(300)
def test_500_turns_cost_what_they_say(tmp_path: Path) -> None:
    sizes: list[int] = []
    for end in (0, TURNS // 2, TURNS):
        messages: list[dict[str, Any]] = []
        with holdfast.open(f"sqlite:///{tmp_path}/runs.db", default=False) as store:
            talk = talk_until(end, messages).with_options(store=store)
            with pytest.raises(RunFailed) if end < TURNS else contextlib.nullcontext():
                talk.run("r")
            assert len([it for it in store.get("r").steps if it.name == "http"]) == end
        sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
    begun, middle, whole = sizes
    assert whole - begun <= 2 * len(json.dumps(messages))
    assert whole - middle <= 1.5 * (middle - begun)
