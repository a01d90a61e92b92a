"""One of several processes that write to each other's runs: `python letters.py MINE OTHER ROUNDS`.

Each has two runs, and appends to both in one batch, again and again: a message to a run of the other
process and one to itself, something from the pot of all, and a value that all write to.
"""

from __future__ import annotations

import os
import sys
from itertools import count

from holdfast._core.rows import Lease, Memo, Message, Post, Spend, Write
from holdfast._store.contract import Committed
from holdfast._store.postgres.store import PostgresStore
from holdfast.testing.store_contract import step
from tests.crash import probe

URL = os.environ["CRASH_URL"]


def letters(mine: str, other: str, number: int) -> list[Post]:
    """Return messages to both, in an order that changes."""
    message = Message(f"{mine}-{number}", "signal", mine, 1, b"{}")
    posts = [Post(f"{name}-{number % 2}", message) for name in (mine, other)]
    return posts if number % 3 else posts[::-1]


def main() -> int:
    mine, other, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    store = PostgresStore(URL)
    owner = store.register_owner()
    leases = [store.claim(f"{mine}-{part}", owner, store.now_us()) for part in range(2)]
    probe.mark(f"ready {mine}")
    probe.wait("go")
    numbers = count()
    committed = 0
    for _ in range(rounds):
        writes = []
        for lease in leases:
            assert isinstance(lease, Lease)
            posts = letters(mine, other, next(numbers))
            spend, memos = Spend("all", steps=1, checks=True), [Memo("s", "all", b"1")]
            writes.append(Write(lease, [step()], posts=posts, spend=spend, memos=memos))
        outcomes = store.append(writes)
        committed += sum(isinstance(outcome, Committed) for outcome in outcomes)
    store.close()
    return committed


if __name__ == "__main__":
    probe.end(main)
