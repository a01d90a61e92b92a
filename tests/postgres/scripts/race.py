"""Many processes want one run at the same moment: `python race.py PROCESSES`.

Says what each of them got: the epoch of its lease, or who has the run.
"""

from __future__ import annotations

import json
import os
import signal
import sys

from holdfast._engine.journal.rows import Lease
from holdfast._stores.postgres.postgres_store import PostgresStore
from tests.crash import probe

URL = os.environ["CRASH_URL"]


def run_one(ready: int, go: int, told: int) -> None:
    """One process: have everything open, say so, wait for the start, and take it."""
    signal.alarm(60)  # Nobody is left over, whatever happens to the parent.
    store = PostgresStore(f"{URL}?pool=1")
    owner = store.register_owner()
    os.write(ready, b".")
    os.read(go, 1)  # Ends when the parent closes its end.
    got = store.claim("r", owner, store.now_us())
    answer = {"epoch": got.row.epoch} if isinstance(got, Lease) else {"busy": got.owner}
    os.write(told, (json.dumps(answer) + "\n").encode())
    signal.pause()  # Who has it keeps it, until all have asked.


def main() -> list[dict[str, object]]:
    count = int(sys.argv[1])
    ready_in, ready = os.pipe()
    go, go_out = os.pipe()
    told_in, told = os.pipe()
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            os.close(go_out)
            try:
                run_one(ready, go, told)
            finally:
                os._exit(1)
        children.append(child)
    waiting = 0
    while waiting < count:
        waiting += len(os.read(ready_in, count))
    os.close(go_out)
    with os.fdopen(told_in) as lines:
        answers = [json.loads(lines.readline()) for _ in children]
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return answers


if __name__ == "__main__":
    probe.end(main)
