"""Leaves many runs behind: takes them, as a worker does, and dies: `python stranded.py RUNS`."""

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

from holdfast import flow, step
from holdfast._stores.contract import Wanted
from tests.crash import probe


@step(name="stranded count")
async def count(number: int) -> int:
    probe.executed(number, run=f"r{number}")
    return number


@flow(name="stranded counted")
async def counted(number: int) -> int:
    return await count(number)


if __name__ == "__main__":
    runs = int(sys.argv[1])
    store = probe.open_store()
    with ThreadPoolExecutor(32) as pool:
        list(pool.map(lambda number: counted.submit(f"r{number}", number), range(runs)))
    taken: list[int] = []
    while len(taken) < runs:
        wanted = Wanted(store._engine.owner(), 500, store._backend.now_us(), working=taken)
        taken += [lease.row.run_no for lease in store._backend.take(wanted)]
    os._exit(9)
