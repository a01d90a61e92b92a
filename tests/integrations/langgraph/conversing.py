"""What tests of the middleware share: a model on a scripted server, and agents of it."""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

from holdfast.integrations.langgraph import DurableMiddleware
from holdfast.testing import FakeModelServer

KEY = "sk-canary-4711"
HELLO = {"messages": [{"role": "user", "content": "Hello"}]}


def chat(server: FakeModelServer, **options: Any) -> ChatOpenAI:
    options = {"max_retries": 0, **options}
    return ChatOpenAI(model="scripted", base_url=f"{server.url}/v1", api_key=KEY, **options)


def agent_of(server: FakeModelServer, tools: list[Any], **options: Any) -> Any:
    middleware = options.pop("middleware", [DurableMiddleware()])
    return create_agent(chat(server), tools, middleware=middleware, **options)


def texts(result: dict[str, Any]) -> list[str]:
    return [str(message.content) for message in result["messages"]]
