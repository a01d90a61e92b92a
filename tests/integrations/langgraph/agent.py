"""The agent of the harness with LangChain's `create_agent`, in a plain flow, without a checkpointer."""

from __future__ import annotations

import os
from typing import Any

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

import holdfast
from holdfast import NOT_DONE, Done, effect, flow
from holdfast.integrations.langgraph import DurableMiddleware
from tests.integrations import world
from tests.integrations.program import RUN_ID, main, server_url


def refund(order: str, amount: int) -> str:
    """Pay money back."""
    return world.refund(order, amount, holdfast.idempotency_key())


def look_at_bank(order: str, amount: int) -> Any:
    found = world.refunded(order, amount)
    return Done(found) if found else NOT_DONE


def model() -> ChatOpenAI:
    return ChatOpenAI(model="scripted", base_url=f"{server_url()}/v1", max_retries=0)


def task() -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": os.environ.get("TASK", "Refund order 42")}]}


def build() -> Any:
    asked = effect(on_doubt=look_at_bank, needs_approval=True)(refund)
    tools = [world.lookup_order, world.check_stock, asked]
    return create_agent(model(), tools, middleware=[DurableMiddleware()])


@flow
def agent(task: dict[str, Any]) -> str:
    return str(build().invoke(task)["messages"][-1].content)


@flow
async def async_agent(task: dict[str, Any]) -> str:
    reply = await build().ainvoke(task)
    return str(reply["messages"][-1].content)


if __name__ == "__main__":
    chosen = async_agent if os.environ.get("ASYNC") else agent
    main(lambda: chosen.run(RUN_ID, task()))
