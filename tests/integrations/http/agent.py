"""The agent of the harness over plain HTTP: VARIANT names the library and the colour."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
from typing import Any

import holdfast
from holdfast import NOT_DONE, Done, aio, ask, effect, flow
from holdfast.adapters import as_step, step_key
from holdfast.integrations.http import AsyncDurableTransport, DurableTransport
from tests.integrations import world
from tests.integrations.program import QUESTION, RUN_ID, main, server_url

LIBRARY, _, COLOUR = os.environ.get("VARIANT", "httpx-sync").partition("-")
PROMPT = os.environ.get("PROMPT", "Refund order 42")
http = importlib.import_module(LIBRARY)
HEADERS = {"authorization": "Bearer test"}


@effect
def refund(order: str, amount: int) -> str:
    return world.refund(order, amount, holdfast.idempotency_key())


@refund.on_doubt
def look_at_bank(order: str, amount: int) -> Any:
    found = world.refunded(order, amount)
    return Done(found) if found else NOT_DONE


TOOLS = {
    "lookup_order": as_step(world.lookup_order, name="lookup_order"),
    "check_stock": as_step(world.check_stock, name="check_stock"),
    "refund": refund,
}


def asked(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"model": "test", "messages": messages}


def call(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    with step_key(tool["id"]):
        result = TOOLS[function["name"]](**json.loads(function["arguments"]))
    return {"role": "tool", "tool_call_id": tool["id"], "content": result}


def read(response: Any) -> dict[str, Any]:
    response.raise_for_status()
    return response.json()["choices"][0]["message"]


@flow(name="agent")
def agent() -> str:
    messages: list[dict[str, Any]] = [{"role": "user", "content": PROMPT}]
    with http.Client(
        transport=DurableTransport(), base_url=server_url(), headers=HEADERS
    ) as client:
        while True:
            reply = read(client.post("/v1/chat/completions", json=asked(messages)))
            messages.append(reply)
            if not reply.get("tool_calls"):
                return str(reply["content"])
            if not ask(QUESTION, name="refund", type=bool):
                return "refused"
            calls = reply["tool_calls"]
            messages += holdfast.gather(*(lambda it=it: call(it) for it in calls))


@flow(name="agent-async")
async def agent_async() -> str:
    messages: list[dict[str, Any]] = [{"role": "user", "content": PROMPT}]
    transport = AsyncDurableTransport()
    async with http.AsyncClient(
        transport=transport, base_url=server_url(), headers=HEADERS
    ) as client:
        while True:
            reply = read(await client.post("/v1/chat/completions", json=asked(messages)))
            messages.append(reply)
            if not reply.get("tool_calls"):
                return str(reply["content"])
            if not await aio.ask(QUESTION, name="refund", type=bool):
                return "refused"
            # Tasks and threads of its own, as a framework has them.
            calls = (asyncio.to_thread(call, it) for it in reply["tool_calls"])
            messages += await asyncio.gather(*calls)


if __name__ == "__main__":
    main(lambda: (agent if COLOUR == "sync" else agent_async).run(RUN_ID))
