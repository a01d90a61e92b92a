"""A long conversation: what is kept grows with the messages, and no faster."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import httpx
import pytest

import holdfast
from holdfast import flow
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


def size(folder: Path) -> int:
    return sum(os.path.getsize(path) for path in folder.iterdir())


@pytest.mark.timeout(300)
def test_500_turns_cost_what_they_say(tmp_path: Path) -> None:
    messages: list[dict[str, Any]] = []
    sizes: list[int] = []
    with holdfast.open(f"sqlite:///{tmp_path}/runs.db", default=False) as store:

        @flow(name="hg-talk")
        def talk() -> None:
            transport = DurableTransport(httpx.MockTransport(answer))
            with httpx.Client(transport=transport) as client:
                for turn in range(TURNS):
                    if turn in (0, TURNS // 2):
                        sizes.append(_settled(store, tmp_path))
                    messages.append({"role": "user", "content": said(2 * turn)})
                    body = {"model": "test", "messages": messages}
                    response = client.post("https://model.test/v1/chat/completions", json=body)
                    messages.append(response.json()["choices"][0]["message"])

        talk.with_options(store=store).run("r")
        sizes.append(_settled(store, tmp_path))
        steps = [it for it in store.get("r").steps if it.name == "http"]
        assert len(steps) == TURNS
    begun, middle, end = sizes
    assert end - begun <= 2 * len(json.dumps(messages))
    assert end - middle <= 1.5 * (middle - begun)


def _settled(store: Any, folder: Path) -> int:
    """The size of the database, once what is on its way has arrived in it."""
    import sqlite3

    del store
    with sqlite3.connect(folder / "runs.db") as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)")
    return os.path.getsize(folder / "runs.db")
