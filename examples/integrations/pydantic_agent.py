"""An agent of Pydantic AI that refunds an order, and goes on where it stopped when it is started again."""

from __future__ import annotations

import asyncio

from pydantic_ai import Agent

import holdfast
from holdfast.integrations.pydantic_ai import Durable


def lookup_order(order: str) -> str:
    """Look up an order."""
    return f"order {order}: one lamp, 30 EUR"


@holdfast.effect(on_doubt="retry")
def refund(order: str, amount: int) -> str:
    """Pay money back. The bank knows the key, so that a second call pays nothing."""
    return f"refunded {amount} EUR for order {order} as {holdfast.idempotency_key()[:4]}…"


agent = Agent(
    "openai:gpt-5-mini",
    name="support",
    tools=[lookup_order, refund],
    capabilities=[Durable()],
)


@holdfast.flow
async def support(task: str) -> str:
    result = await agent.run(task)
    return result.output


if __name__ == "__main__":
    print(asyncio.run(support.run("ticket-42", "Refund order 42")))
