"""500 turns of a growing conversation: each message is stored once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, ChatResult

import holdfast
from holdfast import flow
from holdfast.integrations.langgraph import DurableMiddleware
from holdfast.integrations.langgraph.plain_messages import conversation
from tests.integrations.langgraph.conversing import HELLO

TURNS = 500
LETTERS = "abcdefghijklmnopqrstuvwxyz     "


def text(seed: str) -> str:
    """About 1 KB that no other text has."""
    return "".join(random.Random(seed).choices(LETTERS, k=1000)).strip()


class Talker(BaseChatModel):
    """A model that asks for a tool each time, until it has spoken often enough."""

    limit: int

    @property
    def _llm_type(self) -> str:
        return "talker"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: Any, *args: Any, **options: Any) -> ChatResult:
        number = sum(1 for message in messages if message.type == "ai")
        calls = [{"name": "note", "args": {"what": str(number)}, "id": f"call_{number}"}]
        reply = AIMessage(text(f"m{number}"), tool_calls=calls if number + 1 < self.limit else [])
        return ChatResult(generations=[ChatGeneration(message=reply)])


def note(what: str) -> str:
    """Note something."""
    return text(f"t{what}")


@flow(name="long-talk")
def talk(limit: int) -> int:
    agent = create_agent(Talker(limit=limit), [note], middleware=[DurableMiddleware()])
    result = agent.invoke(HELLO, {"recursion_limit": 4 * limit})
    sizes.append(len(msgspec.json.encode(conversation(result["messages"]))))
    return len(result["messages"])


sizes: list[int] = []


def grown(folder: Path, limit: int) -> tuple[int, int]:
    """How much a store has grown by a conversation, and the size of the conversation."""
    folder.mkdir()
    with holdfast.open(f"sqlite:///{folder}/runs.db", default=False) as store:
        before = sum(file.stat().st_size for file in folder.iterdir())
        assert talk.with_options(store=store).run("r", limit) == 2 * limit
        assert len(store.get("r").steps) == 2 * limit - 1
    return sum(file.stat().st_size for file in folder.iterdir()) - before, sizes[-1]


@pytest.mark.timeout(600)
def test_each_message_is_stored_once(tmp_path: Path) -> None:
    half, _ = grown(tmp_path / "half", TURNS // 2)
    whole, messages = grown(tmp_path / "whole", TURNS)
    assert whole <= 2 * messages, (whole, messages)
    assert whole - half <= 1.5 * half, (half, whole)
