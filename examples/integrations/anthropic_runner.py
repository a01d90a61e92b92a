"""An agent with Anthropic's tool runner: kill it anywhere, start it again, and it goes on."""

import httpx2
from anthropic import Anthropic

import holdfast
from holdfast.integrations.anthropic import tool_runner
from holdfast.integrations.http import DurableTransport
from holdfast.integrations.tools import tool


@tool
def find_order(order: str) -> str:
    """Look up an order."""
    return f"order {order}: one lamp, 30 EUR"


@tool(effect=True, on_doubt="retry")
def refund(order: str, amount: int) -> str:
    """Pay money back."""
    return f"refunded {amount} EUR for order {order} ({holdfast.idempotency_key()[:3]}…)"


with holdfast.run("order-42"):
    runner = tool_runner(
        Anthropic(http_client=httpx2.Client(transport=DurableTransport())),
        tools=[find_order, refund],
        model="claude-sonnet-5",
        max_tokens=1000,
        messages=[{"role": "user", "content": "Refund order 42"}],
    )
    last = runner.until_done()
print(last.content[0].text)
