"""Two hundred runs in flight in one process: `python fleet.py RUNS`.

Step 3 of each run waits for step 3 of all others, so that all of them are in flight when one of
them pulls the whole process down.
"""

from __future__ import annotations

import asyncio
import sys

from holdfast import flow, step
from tests.crash import probe

STEPS = 5
MEET_AT = 3

here = 0
all_here = asyncio.Event()
runs = int(sys.argv[1])


@step
async def work(run: int, i: int) -> int:
    global here
    probe.executed(i, run=f"r{run}")
    if i == MEET_AT:
        here += 1
        if here == runs:
            probe.point("all in flight")
            all_here.set()
        await all_here.wait()
    return run * i


@flow
async def member(run: int) -> int:
    return sum([await work(run, i) for i in range(1, STEPS + 1)])


async def fleet() -> list[int]:
    return await asyncio.gather(*(member.run(f"r{run}", run) for run in range(runs)))


if __name__ == "__main__":
    with probe.open_store():
        probe.end(lambda: asyncio.run(fleet()))
