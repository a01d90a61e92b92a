"""A worker that executes runs of its own until it is told to end; a minute has half a second here.

`python measured.py PREFIX`
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from holdfast import flow, step
from holdfast._features.measures import model as measures, runtime as measuring, tally as tallying
from tests.crash import probe

for module in (measures, tallying, measuring):
    vars(module)["MINUTE_US"] = 500_000

prefix = sys.argv[1]


@step(name="measured work")
def work(number: int) -> int:
    return os.getpid()


@flow(name="measured work of a process")
def counted() -> int:
    return sum(work(number) for number in range(5))


if __name__ == "__main__":
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    with probe.open_store() as store, store.worker(concurrency=2):
        number = 0
        while not ending.is_set():
            counted.submit(f"{prefix}-{number}").result(60)
            number += 1
    probe.say(runs=number)
