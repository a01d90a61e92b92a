"""The agent of the harness in Pydantic AI; the question is the approval of its one dangerous tool."""

from __future__ import annotations

from typing import Any

from openai import AsyncOpenAI
from pydantic_ai import Agent, Tool
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

import holdfast
from holdfast import NOT_DONE, Done, effect, flow
from holdfast.integrations.pydantic_ai import Durable
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


client = AsyncOpenAI(base_url=f"{server_url()}/v1")
support = Agent(
    OpenAIChatModel("test", provider=OpenAIProvider(openai_client=client)),
    name="support",
    instructions="You refund orders.",
    tools=[world.lookup_order, world.check_stock, Tool(refund, requires_approval=True)],
    capabilities=[Durable()],
)


@flow
async def agent(task: str) -> str:
    result = await support.run(task)
    return result.output


if __name__ == "__main__":
    main(lambda: agent.run(RUN_ID, "Refund order 42"))
