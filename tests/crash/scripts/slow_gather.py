"""Two effects side by side that both wait to be told to go on: `python slow_gather.py sync|async`."""

from __future__ import annotations

import asyncio
import sys

from holdfast import aio, effect, flow, gather
from tests.crash import probe


@effect
def send(name: str) -> str:
    probe.executed(name)
    probe.mark(f"{name} in effect")
    probe.wait(f"{name} go on")
    return name


@flow
def both() -> list[str]:
    return list(gather(lambda: send("left"), lambda: send("right")))


@flow
async def both_async() -> list[str]:
    return list(await aio.gather(send.aio("left"), send.aio("right")))


def main() -> list[str]:
    if sys.argv[1] == "async":
        return asyncio.run(both_async.run("r"))
    return both.run("r")


if __name__ == "__main__":
    with probe.open_store():
        probe.end(main)
