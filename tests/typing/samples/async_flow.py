"""A user's module, all of it checked: what the types promise where a flow is awaited.

A line that ends in `# error` is wrong, and every checker has to say so; no other line is.
"""

import asyncio
from dataclasses import dataclass
from typing import assert_type

from holdfast.types import Handle
from holdfast import aio, effect, flow, step, resource


@dataclass
class Reply:
    text: str


class Client:
    async def ask(self, question: str) -> str:
        return question


def make_client() -> Client:
    return Client()


@step
async def think(question: str, client: Client = resource(make_client)) -> Reply:
    return Reply(await client.ask(question))


@step
async def count(text: str) -> int:
    return len(text)


@effect(on_doubt="fail")
async def send(text: str) -> str:
    return text


@flow
async def agent(question: str) -> str:
    reply = await think(question)
    assert_type(reply, Reply)
    replies, length = await aio.gather(think("a"), count("b"))
    assert_type(replies, Reply)
    assert_type(length, int)
    assert_type(await aio.each(count, ["a", "b"], max_concurrency=2), list[int])
    assert_type(await send(reply.text), str)
    async for state in aio.turns(Reply(""), max_turns=3):
        assert_type(state, Reply)
    return reply.text


async def use_it() -> None:
    assert_type(await agent.run("r", "why?"), str)
    assert_type(await agent.aio.submit("r", "why?"), Handle[str])
    async with aio.run("script-7"):
        assert_type(await count("word"), int)


def main() -> None:
    assert_type(asyncio.run(agent.run("r", question="why?")), str)


async def misuse() -> None:
    await agent.run("r", 7)  # error
    await agent.run("r")  # error
    length: int = count("word")  # error
    await think(question=1)  # error
    print(length)
