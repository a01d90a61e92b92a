"""A graph whose nodes ask a server through a durable transport: two nodes, two requests each, all alike.

DIE says when the process is killed: `before 2`, before the second node; `sent 2`, when the answer to its
second request has come and nothing of it is recorded. With ASYNC all of it is awaited.
"""

from __future__ import annotations

import asyncio
import operator
import os
import signal
from typing import Annotated, Any, TypedDict

import httpx
from langgraph.graph import END, START, StateGraph

import holdfast
from holdfast.integrations.http import AsyncDurableTransport, DurableTransport
from holdfast.integrations.langgraph import HoldfastSaver, durable_graph

sent = 0


class State(TypedDict):
    heard: Annotated[list[str], operator.add]


def die(where: str) -> None:
    if os.environ.get("DIE") == where:
        os.kill(os.getpid(), signal.SIGKILL)


def came() -> None:
    global sent
    sent += 1
    die(f"sent {sent}")


class Sends(httpx.HTTPTransport):
    def handle_request(self, request: httpx.Request) -> httpx.Response:
        response = super().handle_request(request)
        came()
        return response


class AsyncSends(httpx.AsyncHTTPTransport):
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await super().handle_async_request(request)
        came()
        return response


client = httpx.Client(transport=DurableTransport(Sends()))
async_client = httpx.AsyncClient(transport=AsyncDurableTransport(AsyncSends()))


def node(number: int) -> Any:
    def asks(_state: State) -> State:
        die(f"before {number}")
        return {"heard": [client.post(os.environ["SERVER"], json="?").text for _ in range(2)]}

    async def awaits(_state: State) -> State:
        die(f"before {number}")
        answers = [await async_client.post(os.environ["SERVER"], json="?") for _ in range(2)]
        return {"heard": [it.text for it in answers]}

    return awaits if os.environ.get("ASYNC") else asks


def graph() -> Any:
    builder = StateGraph(State)
    builder.add_node("one", node(1))
    builder.add_node("two", node(2))
    for edge in ((START, "one"), ("one", "two"), ("two", END)):
        builder.add_edge(*edge)
    return builder.compile()


if __name__ == "__main__":
    with holdfast.open("sqlite:///runs.db") as store:
        awaited: Any = bool(os.environ.get("ASYNC"))
        asking: Any = durable_graph("asking", graph(), saver=HoldfastSaver(store), awaits=awaited)
        done = asking.run("r", {"heard": []})
        print(*(asyncio.run(done) if awaited else done)["heard"])
        print(*sorted(step.key for step in store.get("r").steps if step.name == "http"))
