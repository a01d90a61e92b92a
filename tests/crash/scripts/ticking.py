"""A worker with two schedules, until it is told to end: `python ticking.py START_FAST START_PAST`.

`fast` ticks ten times a second from a moment that is still to come; `past` ticks every hour, and a
hundred of its ticks have passed before anybody looked.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import sys
import threading

import holdfast
from holdfast import flow, step
from holdfast.schedules import SCHEDULED_TIME
from tests.crash import probe


@step
def noted(name: str, tick: dt.datetime) -> str:
    probe.executed(name, run=tick.isoformat())
    return tick.isoformat()


@flow
def ticked(name: str, tick: dt.datetime) -> str:
    return noted(name, tick)


starts = [dt.datetime.fromisoformat(text) for text in sys.argv[1:]]
for name, every, start in (("fast", 0.1, starts[0]), ("past", 3600, starts[1])):
    holdfast.schedules.schedule(
        name,
        ticked,
        every=every,
        start=start,
        catch_up="all",
        args=(name,),
        kwargs={"tick": SCHEDULED_TIME},
    )

if __name__ == "__main__":
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    with probe.open_store() as store, store.worker(concurrency=4):
        probe.mark(f"ticking {os.getpid()}")
        ending.wait()
    probe.say(ended=True)
