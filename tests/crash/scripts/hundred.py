"""A hundred steps in every shape that a run can have: `python hundred.py SHAPE`."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import holdfast
from holdfast import aio, flow, plan, step
from tests.crash import probe

STEPS = 100
BRANCHES = 4


@step
def work(i: int) -> int:
    probe.executed(i)
    probe.point(f"step {i}")
    return i * i


@step
async def work_async(i: int) -> int:
    probe.executed(i)
    probe.point(f"step {i}")
    await asyncio.sleep(0)
    return i * i


@dataclass
class Tally:
    squares: list[int]


def strand(branch: int) -> int:
    return sum(work(i) for i in range(branch + 1, STEPS + 1, BRANCHES))


async def strand_async(branch: int) -> int:
    total = 0
    for i in range(branch + 1, STEPS + 1, BRANCHES):
        total += await work_async(i)
    return total


@flow
def plain() -> int:
    return sum(work(i) for i in range(1, STEPS + 1))


@flow
async def awaited() -> int:
    return sum([await work_async(i) for i in range(1, STEPS + 1)])


@flow
async def threaded() -> int:
    """A sync step in an async flow runs in a thread."""
    return sum([await work.aio(i) for i in range(1, STEPS + 1)])


@flow
def in_turns() -> int:
    for tally in holdfast.turns(Tally([]), max_turns=STEPS + 1):
        if len(tally.squares) == STEPS:
            return sum(tally.squares)
        tally.squares.append(work(len(tally.squares) + 1))
    raise AssertionError


@flow
async def in_turns_async() -> int:
    async for tally in aio.turns(Tally([]), max_turns=STEPS + 1):
        if len(tally.squares) == STEPS:
            return sum(tally.squares)
        tally.squares.append(await work_async(len(tally.squares) + 1))
    raise AssertionError


@flow
def gathered() -> int:
    return sum(holdfast.gather(*(functools.partial(strand, b) for b in range(BRANCHES))))


@flow
async def gathered_async() -> int:
    return sum(await aio.gather(*(strand_async(b) for b in range(BRANCHES))))


@flow
def for_each() -> int:
    return sum(holdfast.each(work, range(1, STEPS + 1), max_concurrency=BRANCHES))


@flow
async def for_each_async() -> int:
    return sum(await aio.each(work_async, range(1, STEPS + 1), max_concurrency=BRANCHES))


def in_block() -> int:
    with holdfast.run("r"):
        return sum(work(i) for i in range(1, STEPS + 1))


async def in_block_async() -> int:
    async with aio.run("r"):
        return sum([await work_async(i) for i in range(1, STEPS + 1)])


def planned(i: int) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Return a plain function of the state, with a name of its own, as a plan takes them."""

    def add(state: dict[str, Any]) -> dict[str, Any]:
        probe.executed(i)
        probe.point(f"step {i}")
        return {**state, "total": state["total"] + i * i}

    add.__name__ = add.__qualname__ = f"add_{i}"
    return add


squares = plan("squares", [planned(i) for i in range(1, STEPS + 1)])

SHAPES: dict[str, Callable[[], Any]] = {
    "flow": lambda: plain.run("r"),
    "aio flow": lambda: asyncio.run(awaited.run("r")),
    "sync steps in aio flow": lambda: asyncio.run(threaded.run("r")),
    "turns": lambda: in_turns.run("r"),
    "aio turns": lambda: asyncio.run(in_turns_async.run("r")),
    "gather": lambda: gathered.run("r"),
    "aio gather": lambda: asyncio.run(gathered_async.run("r")),
    "each": lambda: for_each.run("r"),
    "aio each": lambda: asyncio.run(for_each_async.run("r")),
    "block": in_block,
    "aio block": lambda: asyncio.run(in_block_async()),
    "plan": lambda: squares.run("r", {"total": 0})["total"],
}

if __name__ == "__main__":
    with probe.open_store():
        probe.end(SHAPES[sys.argv[1]])
