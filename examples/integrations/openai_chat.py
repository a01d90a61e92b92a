"""An agent with OpenAI's chat completions: kill it anywhere, start it again, and it goes on."""

from typing import Any

import httpx2
from openai import OpenAI

import holdfast
from holdfast.integrations.http import DurableTransport
from holdfast.integrations.tools import Tools, tool


@tool
def find_order(order: str) -> str:
    """Look up an order."""
    return f"order {order}: one lamp, 30 EUR"


@tool(effect=True, on_doubt="retry")
def refund(order: str, amount: int) -> str:
    """Pay money back."""
    return f"refunded {amount} EUR for order {order} ({holdfast.idempotency_key()[:3]}…)"


tools = Tools([find_order, refund])

with holdfast.run("order-42"):
    client = OpenAI(http_client=httpx2.Client(transport=DurableTransport()))
    messages: Any = [{"role": "user", "content": "Refund order 42"}]
    while True:
        reply = client.chat.completions.create(
            model="gpt-5-mini", messages=messages, tools=tools.openai
        )
        message = reply.choices[0].message
        messages.append(message.model_dump(exclude_none=True))
        if not message.tool_calls:
            break
        messages += tools.answer_chat(message)
print(message.content)
