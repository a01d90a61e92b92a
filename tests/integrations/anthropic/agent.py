"""The agent of the harness with Anthropic's SDK, in the manner that VARIANT names: a loop of one's own
round messages, or the SDK's tool runner; each sync or async."""

from __future__ import annotations

import os
from typing import Any

import httpx2
from anthropic import Anthropic, AsyncAnthropic

import holdfast
from holdfast import NOT_DONE, Done, ask, effect, flow
from holdfast.integrations.anthropic import tool_runner
from holdfast.integrations.http import AsyncDurableTransport, DurableTransport
from holdfast.integrations.tools import Tools
from tests.integrations import world
from tests.integrations.program import QUESTION, RUN_ID, main, server_url


@effect
def refund(order: str, amount: int) -> str:
    """Pay money back."""
    return world.refund(order, amount, holdfast.idempotency_key())


@refund.on_doubt
def look_at_bank(order: str, amount: int) -> Any:
    found = world.refunded(order, amount)
    return Done(found) if found else NOT_DONE


functions = [world.lookup_order, world.check_stock, refund]
tools = Tools(functions)


def client() -> Anthropic:
    http = httpx2.Client(transport=DurableTransport())
    return Anthropic(base_url=server_url(), http_client=http)


def async_client() -> AsyncAnthropic:
    http = httpx2.AsyncClient(transport=AsyncDurableTransport())
    return AsyncAnthropic(base_url=server_url(), http_client=http)


@flow
def loop(task: str) -> str:
    messages: Any = [{"role": "user", "content": task}]
    with client() as anthropic:
        while True:
            reply = anthropic.messages.create(
                model="test", max_tokens=99, messages=messages, tools=tools.anthropic
            )
            messages.append({"role": "assistant", "content": reply.to_dict()["content"]})
            if reply.stop_reason != "tool_use":
                return reply.content[0].text
            if not ask(QUESTION, name="refund", type=bool):
                return "refused"
            messages.append(tools.answer_messages(reply))


@flow
async def async_loop(task: str) -> str:
    messages: Any = [{"role": "user", "content": task}]
    async with async_client() as anthropic:
        while True:
            reply = await anthropic.messages.create(
                model="test", max_tokens=99, messages=messages, tools=tools.anthropic
            )
            messages.append({"role": "assistant", "content": reply.to_dict()["content"]})
            if reply.stop_reason != "tool_use":
                return reply.content[0].text
            if not await holdfast.aio.ask(QUESTION, name="refund", type=bool):
                return "refused"
            messages.append(await tools.aio.answer_messages(reply))


def asked(task: str) -> dict[str, Any]:
    messages = [{"role": "user", "content": task}]
    return {"model": "test", "max_tokens": 99, "messages": messages, "max_iterations": 9}


@flow
def runner(task: str) -> str:
    with client() as anthropic:
        turns = tool_runner(anthropic, tools=functions, **asked(task))
        for message in turns:
            if message.stop_reason == "tool_use" and not ask(QUESTION, name="refund", type=bool):
                return "refused"
        return turns.until_done().content[0].text


@flow
async def async_runner(task: str) -> str:
    async with async_client() as anthropic:
        turns = tool_runner(anthropic, tools=functions, **asked(task))
        async for message in turns:
            if message.stop_reason == "tool_use" and not await holdfast.aio.ask(
                QUESTION, name="refund", type=bool
            ):
                return "refused"
        return (await turns.until_done()).content[0].text


VARIANTS: dict[str, Any] = {
    "loop": loop,
    "async_loop": async_loop,
    "runner": runner,
    "async_runner": async_runner,
}

if __name__ == "__main__":
    agent = VARIANTS[os.environ["VARIANT"]]
    main(lambda: agent.run(RUN_ID, "Refund order 42"))
