"""An agent whose stream is shown: each line says what came, and whether its model call was recorded
by then. With DIE set, the process kills itself at the first token of the second answer."""

from __future__ import annotations

import os
import signal
from typing import Any

from langchain.agents import create_agent

import holdfast
from holdfast import flow
from holdfast.integrations.langgraph import DurableMiddleware
from tests.integrations.langgraph.agent import model, task
from tests.integrations.program import RUN_ID, main

SECOND = "The lamp is here."


def look(what: str) -> str:
    """Look something up."""
    return f"one {what}"


def build() -> Any:
    return create_agent(model(), [look], middleware=[DurableMiddleware()])


def recorded() -> int:
    with holdfast.open(os.environ["STORE"], default=False) as store:
        steps = store.get(RUN_ID).steps
        return sum(1 for it in steps if it.name == "model" and it.status == "completed")


def show(mode: str, item: Any) -> None:
    if mode == "updates":
        print("UPDATE", *item, flush=True)
        return
    message, _ = item
    if not message.content:
        return
    print("MESSAGE", type(message).__name__, recorded(), message.content, flush=True)
    if os.environ.get("DIE") and SECOND.startswith(message.content):
        os.kill(os.getpid(), signal.SIGKILL)


@flow
def streams(task: dict[str, Any]) -> str:
    for mode, item in build().stream(task, stream_mode=["messages", "updates"]):
        show(mode, item)
    return "end"


@flow
async def astreams(task: dict[str, Any]) -> str:
    async for mode, item in build().astream(task, stream_mode=["messages", "updates"]):
        show(mode, item)
    return "end"


if __name__ == "__main__":
    chosen = astreams if os.environ.get("ASYNC") else streams
    main(lambda: chosen.run(RUN_ID, task()))
