"""MCP: calls to servers recorded as steps and effects of a run, and a server that shows runs.

    client = durable(Client(server), steps=["search"])
    async with client:
        found = await client.call_tool("search", {"query": "lamps"}, call_id="call_17")

`holdfast.integrations.mcp.server` is what `holdfast mcp` serves.
"""

from holdfast.integrations._needs import needs

needs("mcp", extra="mcp")

from holdfast.integrations.mcp.client import KEY_META, DurableClient, durable  # noqa: E402

__all__ = ["KEY_META", "DurableClient", "durable"]
