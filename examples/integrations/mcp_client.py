"""An agent whose tools belong to an MCP server. Kill it anywhere and start it again."""

import asyncio
import json
import os
import urllib.request
from pathlib import Path
from typing import Any

from mcp import Client
from mcp.server.mcpserver import Context, MCPServer

from holdfast import flow, step
from holdfast.integrations.mcp import KEY_META, durable

# A server of somebody else, in memory here. It knows a key that it has seen before.
shop = MCPServer("shop", log_level="ERROR")


@shop.tool()
def stock(item: str) -> str:
    return f"{item}: 7 in stock"


@shop.tool()
def order(item: str, count: int, ctx: Context) -> str:
    book = Path("orders.txt")
    line = f"{(ctx.request_context.meta or {})[KEY_META]} {count} {item}\n"
    if not book.exists() or line not in book.read_text():
        with book.open("a") as out:
            out.write(line)
    return f"ordered {count} {item}"


@step(name="model")
def think(messages: list[dict[str, Any]]) -> dict[str, Any]:
    body = json.dumps({"model": "gpt-5", "messages": messages}).encode()
    key = {"authorization": f"Bearer {os.environ['OPENAI_API_KEY']}"}
    url = f"{os.environ['OPENAI_BASE_URL']}/chat/completions"
    with urllib.request.urlopen(urllib.request.Request(url, body, key)) as response:
        return json.load(response)["choices"][0]["message"]


@flow
async def agent(task: str) -> str:
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    client = durable(Client(shop), steps=["stock"], effects={"order": {"on_doubt": "retry"}})
    async with client:
        while calls := (reply := await think.aio(messages)).get("tool_calls"):
            messages.append(reply)
            for call in calls:
                name, arguments = call["function"]["name"], call["function"]["arguments"]
                result = await client.call_tool(name, json.loads(arguments), call_id=call["id"])
                text = result.content[0].text
                messages.append({"role": "tool", "tool_call_id": call["id"], "content": text})
    return str(reply["content"])


if __name__ == "__main__":
    print(asyncio.run(agent.run("lamps-1", "Order two lamps if there are any.")))
