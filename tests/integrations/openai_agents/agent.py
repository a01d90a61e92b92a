"""The agent of the harness in the OpenAI Agents SDK; API and MODE say how it is run."""

from __future__ import annotations

import os
from typing import Any

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from openai import AsyncOpenAI

import holdfast
from holdfast import NOT_DONE, Done, effect, flow
from holdfast.integrations.openai_agents import ask_people, install_durable_runner
from tests.integrations import world
from tests.integrations.program import RUN_ID, main, server_url


@effect
def refund(order: str, amount: int) -> str:
    """Pay money back."""
    return world.refund(order, amount, holdfast.idempotency_key())


@refund.on_doubt
def look_at_bank(order: str, amount: int) -> Any:
    found = world.refunded(order, amount)
    return Done(found) if found else NOT_DONE


def made() -> Agent[None]:
    client = AsyncOpenAI(base_url=f"{server_url()}/v1")
    chat = os.environ.get("API") == "chat"
    kind = OpenAIChatCompletionsModel if chat else OpenAIResponsesModel
    return Agent(
        name="support",
        instructions=os.environ.get("INSTRUCTIONS", "Help."),
        model=kind(model="test", openai_client=client),
        tools=[
            function_tool(world.lookup_order),
            function_tool(world.check_stock),
            function_tool(refund, needs_approval=True),
        ],
    )


@flow
async def agent(task: str) -> str:
    if os.environ.get("MODE") == "streamed":
        return await streamed(made(), task)
    return str((await Runner.run(made(), task)).final_output)


async def streamed(support: Agent[None], task: Any) -> str:
    while True:
        result = Runner.run_streamed(support, task)
        async for event in result.stream_events():
            if getattr(getattr(event, "data", None), "type", "").endswith("output_text.delta"):
                world.note("seen", delta=event.data.delta)
        if not result.interruptions:
            return str(result.final_output)
        task = await ask_people(result)


@flow
def agent_sync(task: str) -> str:
    return str(Runner.run_sync(made(), task).final_output)


if __name__ == "__main__":
    set_tracing_disabled(True)
    install_durable_runner(approvals="ask")
    chosen = agent_sync if os.environ.get("MODE") == "sync" else agent
    main(lambda: chosen.run(RUN_ID, "Refund order 42"))
