"""Durable runs for agents of the OpenAI Agents SDK.

    install_durable_runner()                       # once, at the start of the program

    async with holdfast.aio.run("order-42"):
        result = await Runner.run(agent, "Refund order 42", session=DurableSession("cust-7"))

Agents, tools and `Runner.run`, `run_sync` and `run_streamed` are unchanged. Inside a run each model
call is a step (`model:<agent>`), and each call of a function tool or MCP tool is a step or an
effect with its tool call id as key (`refund:call_17`). Outside a run nothing changes.

`_hooks` replaces functions of the SDK and records model calls, `_model_streams` records streams,
`_tool_calls` records tool calls, `_approvals` asks people, `_sessions` keeps conversations.
"""

from __future__ import annotations

from holdfast.integrations._needs import needs

needs("openai-agents", extra="openai-agents")

from holdfast.integrations.openai_agents._approvals import ask_people  # noqa: E402
from holdfast.integrations.openai_agents._hooks import install_durable_runner  # noqa: E402
from holdfast.integrations.openai_agents._provider import ModelCallFailed  # noqa: E402
from holdfast.integrations.openai_agents._sessions import DurableSession  # noqa: E402

__all__ = ["DurableSession", "ModelCallFailed", "ask_people", "install_durable_runner"]
