"""The agent of the harness with its tools behind an MCP server, a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.request
from typing import Any

from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp_types import TextContent

from holdfast import NOT_DONE, Done, aio, flow, step
from holdfast.integrations.mcp import DurableClient, durable
from tests.integrations import world
from tests.integrations.program import QUESTION, RUN_ID, main, server_url


@step(name="model")
def think(messages: list[dict[str, Any]]) -> dict[str, Any]:
    body = json.dumps({"model": "test", "messages": messages}).encode()
    headers = {"authorization": "Bearer test", "content-type": "application/json"}
    request = urllib.request.Request(f"{server_url()}/v1/chat/completions", body, headers)
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]


def look_at_bank(order: str, amount: int) -> Any:
    found = world.refunded(order, amount)
    if found is None:
        return NOT_DONE
    return Done({"content": [{"type": "text", "text": found}]})


def shop() -> DurableClient:
    served = StdioServerParameters(
        command=sys.executable,
        args=["-m", "tests.integrations.mcp.shop"],
        env=dict(os.environ),
    )
    effects = {"refund": {"on_doubt": look_at_bank}}
    return durable(Client(stdio_client(served)), effects=effects, hints=True)


async def call(client: DurableClient, asked: dict[str, Any]) -> dict[str, Any]:
    function = asked["function"]
    result = await client.call_tool(
        function["name"], json.loads(function["arguments"]), call_id=asked["id"]
    )
    text = "".join(it.text for it in result.content if isinstance(it, TextContent))
    return {"role": "tool", "tool_call_id": asked["id"], "content": text}


@flow
async def agent(task: str) -> str:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": task + os.environ.get("PROMPT", "")}
    ]
    while True:
        reply = await think.aio(messages)
        messages.append(reply)
        if not reply.get("tool_calls"):
            return str(reply["content"])
        if not await aio.ask(QUESTION, name="refund", type=bool):
            return "refused"
        async with shop() as client:
            messages += await asyncio.gather(*(call(client, it) for it in reply["tool_calls"]))


if __name__ == "__main__":
    main(lambda: agent.run(RUN_ID, "Refund order 42"))
