"""A worker of today's code, or of the code after it: `python migrating.py old|new PREFIX`.

The code after it has one more migration, which adds a column and a table that today's code has never
heard of. It says from which version on a process can work with the store.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from holdfast import flow, step
from holdfast._stores import schema_versions
from holdfast._stores.postgres import postgres_open
from holdfast._stores.sqlite import migrations
from tests.crash import probe

which, prefix = sys.argv[1:]

SQLITE = "ALTER TABLE runs ADD COLUMN colour TEXT; CREATE TABLE colours (colour TEXT NOT NULL)"
POSTGRES = """ALTER TABLE holdfast.runs ADD COLUMN colour text;
CREATE TABLE holdfast.colours (colour text NOT NULL)"""

if which == "new":
    today, today_there = migrations.steps(), postgres_open.steps()
    schema_versions.WORKS_FROM = int(os.environ.get("CRASH_WORKS_FROM", len(today)))
    migrations.steps = lambda: (*today, SQLITE)  # type: ignore[assignment]
    postgres_open.steps = lambda: (*today_there, POSTGRES)  # type: ignore[assignment]


@step
def work(run: str, number: int) -> int:
    probe.executed(number, run=run, note=which)
    return number


@flow
def counted(run: str) -> int:
    return sum(work(run, number) for number in range(5))


if __name__ == "__main__":
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    with probe.open_store() as store, store.worker(concurrency=2):
        probe.mark(f"{which} works")
        number = 0
        while not ending.is_set():
            # Runs that use columns of today beside those that use none.
            queue = "some" if number % 2 else None
            run_id = f"{prefix}-{number}"
            counted.with_options(queue=queue).submit(run_id, run_id).result(60)
            number += 1
    probe.say(runs=number, findings=[])
