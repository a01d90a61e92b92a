"""An agent of the OpenAI Agents SDK that refunds an order, and goes on where it stopped when it is
started again."""

from __future__ import annotations

import asyncio

from agents import Agent, Runner, function_tool, set_tracing_disabled

import holdfast
from holdfast.integrations.openai_agents import install_durable_runner


@function_tool
def lookup_order(order: str) -> str:
    """Look up an order."""
    return f"order {order}: one lamp, 30 EUR"


@function_tool
@holdfast.effect(on_doubt="retry")
def refund(order: str, amount: int) -> str:
    """Pay money back. The bank knows the key, so that a second call pays nothing."""
    return f"refunded {amount} EUR for order {order} as {holdfast.idempotency_key()[:4]}…"


agent = Agent(name="support", model="gpt-5-mini", tools=[lookup_order, refund])
install_durable_runner()


async def main() -> None:
    async with holdfast.aio.run("ticket-42"):
        result = await Runner.run(agent, "Refund order 42")
        print(result.final_output)


if __name__ == "__main__":
    set_tracing_disabled(True)
    asyncio.run(main())
