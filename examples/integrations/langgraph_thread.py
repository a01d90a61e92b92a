"""A LangGraph thread that is a run: kill it anywhere, start it again, and it goes on."""

from langchain.agents import create_agent
from langchain_openai import ChatOpenAI

import holdfast
from holdfast.integrations.langgraph import DurableMiddleware, HoldfastSaver, durable_graph


def find_order(order: str) -> str:
    """Look up an order."""
    return f"order {order}: one lamp, 30 EUR"


@holdfast.effect(on_doubt="retry")
def refund(order: str, amount: int) -> str:
    """Pay money back."""
    return f"refunded {amount} EUR for order {order} ({holdfast.idempotency_key()[:3]}…)"


tools = [find_order, refund]
agent = create_agent(ChatOpenAI(model="gpt-5-mini"), tools, middleware=[DurableMiddleware()])

with holdfast.open("sqlite:///runs.db") as store:
    support = durable_graph("support", agent, saver=HoldfastSaver(store))
    question = {"messages": [{"role": "user", "content": "Refund order 42"}]}
    print(support.run("order-42", question)["messages"][-1]["content"])
