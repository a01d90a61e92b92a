"""The agent of the harness on a thread: `durable_graph`, checkpoints in the store, and a person who
is asked by LangChain's own middleware.

KILL may also be `put:4`, right after the fourth checkpoint was written, or `writes:2`.
"""

from __future__ import annotations

import os
import signal
from typing import Any

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware

from holdfast import effect
from holdfast.integrations.langgraph import DurableMiddleware, HoldfastSaver, durable_graph
from tests.integrations import world
from tests.integrations.langgraph.agent import look_at_bank, model, refund, task
from tests.integrations.program import RUN_ID, main

kind, _, number = os.environ.get("KILL", "").partition(":")
left = [int(number or 0)]


def count(what: str) -> None:
    if what == kind:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Saver(HoldfastSaver):
    def put(self, *args: Any, **kwargs: Any) -> Any:
        done = super().put(*args, **kwargs)
        count("put")
        return done

    def put_writes(self, *args: Any, **kwargs: Any) -> None:
        super().put_writes(*args, **kwargs)
        count("writes")


def answer(state: dict[str, Any]) -> str:
    return str(state["messages"][-1].content)


def build() -> Any:
    tools = [world.lookup_order, world.check_stock, effect(on_doubt=look_at_bank)(refund)]
    asks = HumanInTheLoopMiddleware(interrupt_on={"refund": True})
    return create_agent(model(), tools, middleware=[asks, DurableMiddleware()])


awaits = bool(os.environ.get("ASYNC"))
support = durable_graph(
    "support",
    build(),
    saver=lambda: Saver(os.environ["STORE"]),
    result=answer,
    awaits=awaits,
)

if __name__ == "__main__":
    if kind in ("put", "writes"):
        os.environ["KILL"] = ""
    main(lambda: support.run(RUN_ID, task()))
