"""The three tools of the harness, served over stdio by a process of their own."""

from __future__ import annotations

import asyncio

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

from holdfast.integrations.mcp import KEY_META
from tests.integrations import world

shop = MCPServer("shop", log_level="ERROR")
READS = ToolAnnotations(read_only_hint=True)


@shop.tool(annotations=READS)
async def lookup_order(order: str) -> str:
    """Look up an order."""
    return await asyncio.to_thread(world.lookup_order, order)


@shop.tool(annotations=READS)
async def check_stock(item: str) -> str:
    """Say how many of an item are in stock."""
    return await asyncio.to_thread(world.check_stock, item)


@shop.tool()
async def refund(order: str, amount: int, ctx: Context) -> str:
    """Pay money back."""
    meta = ctx.request_context.meta or {}
    return await asyncio.to_thread(world.refund, order, amount, meta[KEY_META])


if __name__ == "__main__":
    shop.run("stdio")
