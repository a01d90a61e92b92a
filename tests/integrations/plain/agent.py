"""The agent of the harness as a plain loop: no framework, no SDK, one request per turn."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

import holdfast
from holdfast import NOT_DONE, Done, ask, effect, flow, step
from holdfast.adapters import as_step, step_key
from tests.integrations import world
from tests.integrations.program import QUESTION, RUN_ID, main, server_url


@step(name="model")
def think(messages: list[dict[str, Any]]) -> dict[str, Any]:
    body = json.dumps({"model": "test", "messages": messages}).encode()
    headers = {"authorization": "Bearer test", "content-type": "application/json"}
    request = urllib.request.Request(f"{server_url()}/v1/chat/completions", body, headers)
    with urllib.request.urlopen(request) as response:
        return json.load(response)["choices"][0]["message"]


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


def call(tool: dict[str, Any]) -> dict[str, Any]:
    function = tool["function"]
    with step_key(tool["id"]):
        result = TOOLS[function["name"]](**json.loads(function["arguments"]))
    return {"role": "tool", "tool_call_id": tool["id"], "content": result}


@flow
def agent(task: str) -> str:
    messages: list[dict[str, Any]] = [{"role": "user", "content": task}]
    while True:
        reply = think(messages)
        messages.append(reply)
        if not reply.get("tool_calls"):
            return str(reply["content"])
        if not ask(QUESTION, name="refund", type=bool):
            return "refused"
        calls = reply["tool_calls"]
        messages += holdfast.gather(*(lambda it=it: call(it) for it in calls))


if __name__ == "__main__":
    main(lambda: agent.run(RUN_ID, "Refund order 42"))
