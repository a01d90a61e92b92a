"""What the tests of this integration are made with: models at the model server, stores, readings."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from agents import Agent, OpenAIChatCompletionsModel, OpenAIResponsesModel
from openai import AsyncOpenAI

from holdfast.testing import FakeModelServer

KEY = "sk-never-to-be-stored"

_clients: list[AsyncOpenAI] = []


class Loop:
    """One event loop for all runs of a test, so that clients may keep their connections."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def __call__(self, work: Coroutine[Any, Any, Any], seconds: float = 60) -> Any:
        return self._loop.run_until_complete(asyncio.wait_for(work, seconds))

    def close(self) -> None:
        while _clients:
            self(_clients.pop().close())
        for task in (left := asyncio.all_tasks(self._loop)):  # As `asyncio.run` does.
            task.cancel()
        self(asyncio.wait(left) if left else asyncio.sleep(0))
        self(self._loop.shutdown_asyncgens())
        self(self._loop.shutdown_default_executor())
        self._loop.close()


def model(server: FakeModelServer, api: str = "responses", retries: int = 2) -> Any:
    client = AsyncOpenAI(base_url=f"{server.url}/v1", api_key=KEY, max_retries=retries)
    _clients.append(client)
    kind = OpenAIChatCompletionsModel if api == "chat" else OpenAIResponsesModel
    return kind(model="test", openai_client=client)


def helper(server: FakeModelServer, *tools: Any, name: str = "support", **more: Any) -> Agent[Any]:
    return Agent(name=name, instructions="Help.", model=model(server), tools=list(tools), **more)


def keys(store: Any, run_id: str) -> list[str]:
    return [step.key for step in store.get(run_id).steps]


def said(request: Any) -> list[str]:
    """The outputs of tools that a request carries."""
    items = request.body["input"]
    return [it["output"] for it in items if it.get("type") == "function_call_output"]
