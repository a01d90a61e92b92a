"""The agent of the harness with OpenAI's SDK, in the manner that VARIANT names: a loop of one's own
round chat completions or responses, or the SDK's tool runner with our ledger; each sync or async."""

from __future__ import annotations

import os
from contextlib import aclosing, closing
from typing import Any

import httpx2
from openai import AsyncOpenAI, OpenAI
from openai.lib.responses_tool_runner import AsyncResponsesToolRunner, ResponsesToolRunner

import holdfast
from holdfast import NOT_DONE, Done, ask, flow
from holdfast.integrations.http import AsyncDurableTransport, DurableTransport
from holdfast.integrations.openai import async_ledger, ledger
from holdfast.integrations.tools import Tools, tool
from tests.integrations import world
from tests.integrations.program import QUESTION, RUN_ID, main, server_url

lookup_order = tool(world.lookup_order)
check_stock = tool(world.check_stock)


@tool(effect=True)
def refund(order: str, amount: int) -> str:
    """Pay money back."""
    return world.refund(order, amount, holdfast.idempotency_key())


@refund.on_doubt
def look_at_bank(order: str, amount: int) -> Any:
    found = world.refunded(order, amount)
    return Done(found) if found else NOT_DONE


tools = Tools([lookup_order, check_stock, refund])


def client() -> OpenAI:
    http = httpx2.Client(transport=DurableTransport())
    return OpenAI(base_url=f"{server_url()}/v1", http_client=http)


def async_client() -> AsyncOpenAI:
    http = httpx2.AsyncClient(transport=AsyncDurableTransport())
    return AsyncOpenAI(base_url=f"{server_url()}/v1", http_client=http)


@flow
def chat(task: str) -> str:
    messages: Any = [{"role": "user", "content": task}]
    with client() as openai:
        while True:
            reply = openai.chat.completions.create(
                model="test", messages=messages, tools=tools.openai
            )
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return str(message.content)
            if not ask(QUESTION, name="refund", type=bool):
                return "refused"
            messages += tools.answer_chat(message)


@flow
async def async_chat(task: str) -> str:
    messages: Any = [{"role": "user", "content": task}]
    async with async_client() as openai:
        while True:
            reply = await openai.chat.completions.create(
                model="test", messages=messages, tools=tools.openai
            )
            message = reply.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                return str(message.content)
            if not await holdfast.aio.ask(QUESTION, name="refund", type=bool):
                return "refused"
            messages += await tools.aio.answer_chat(message)


@flow
def responses(task: str) -> str:
    items: Any = [{"role": "user", "content": task}]
    with client() as openai:
        while True:
            response = openai.responses.create(model="test", input=items, tools=tools.responses)
            items += [item.model_dump(exclude_none=True) for item in response.output]
            if not any(item.type == "function_call" for item in response.output):
                return response.output_text
            if not ask(QUESTION, name="refund", type=bool):
                return "refused"
            items += tools.answer_responses(response)


@flow
def runner(task: str) -> str:
    book = ledger(tools)
    loop = ResponsesToolRunner(functions=book.functions)
    params: Any = {"model": "test", "input": task}
    with client() as openai, closing(loop.iterate(openai, params, ledger=book)) as turns:
        for turn in turns:
            if turn.final:
                return turn.response.output_text
            if not ask(QUESTION, name="refund", type=bool):
                return "refused"
    raise AssertionError


@flow
async def async_runner(task: str) -> str:
    book = async_ledger(tools)
    loop = AsyncResponsesToolRunner(functions=book.functions)
    params: Any = {"model": "test", "input": task}
    async with (
        async_client() as openai,
        aclosing(loop.iterate(openai, params, ledger=book)) as turns,
    ):
        async for turn in turns:
            if turn.final:
                return turn.response.output_text
            if not await holdfast.aio.ask(QUESTION, name="refund", type=bool):
                return "refused"
    raise AssertionError


VARIANTS: dict[str, Any] = {
    "chat": chat,
    "async_chat": async_chat,
    "responses": responses,
    "runner": runner,
    "async_runner": async_runner,
}

if __name__ == "__main__":
    agent = VARIANTS[os.environ["VARIANT"]]
    main(lambda: agent.run(RUN_ID, "Refund order 42"))
