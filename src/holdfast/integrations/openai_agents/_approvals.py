"""Approvals of the SDK as questions to people.

A tool with `needs_approval` stops an agent's run with interruptions. Each becomes a question of the
Holdfast run, and the agent continues with the answers.
"""

from __future__ import annotations

import asyncio
from typing import Any

from agents import Agent, RunResult, RunState
from agents.items import ToolApprovalItem
from agents.run import AgentRunner

import holdfast
from holdfast.errors import Rejected
from holdfast.integrations._names import fitting
from holdfast.integrations._tool_questions import ask_about
from holdfast.integrations.openai_agents._lines import line


class AskingRunner(AgentRunner):
    """A runner that asks people about interruptions of the SDK. Outside a run it returns them."""

    async def run(self, starting_agent: Agent[Any], input: Any, **kwargs: Any) -> RunResult:
        """Run the agent until no approval is left."""
        result = await super().run(starting_agent, input, **kwargs)
        while result.interruptions and holdfast.context.current_run() is not None:
            state = await ask_people(result)
            result = await super().run(starting_agent, state, **kwargs)
        return result


async def ask_people(result: Any) -> RunState[Any, Any]:
    """Ask a person about each interruption of a result, in parallel; return the state with which to
    continue.

    For results of `Runner.run_streamed`, and for programs that decide when to ask.
    """
    state: RunState[Any, Any] = result.to_state()
    found: list[ToolApprovalItem] = list(result.interruptions)
    answers = await asyncio.gather(*(_ask(item) for item in found))
    for item, (approved, reason) in zip(found, answers, strict=True):
        if approved:
            state.approve(item)
        else:
            state.reject(item, rejection_message=reason or None)
    return state


async def _ask(item: ToolApprovalItem) -> tuple[bool, str]:
    """Return whether a person approved, and the reason of a rejection."""
    tool = item.name or "tool"
    name = fitting(line(f"approve.{item.call_id or tool}"))
    with holdfast.adapters.step_key(tool, awaited=True):
        try:
            said = await ask_about(f"{tool}({item.arguments})?", name)
        except Rejected as refused:
            return False, refused.reason
    return said, ""
