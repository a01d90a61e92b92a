"""One of three processes that write to each other's runs: `python letters.py MINE OTHER OTHER ROUNDS`.

Each has two runs, and appends to both in one batch, again and again, with messages to runs of the
others, and now and then something from the account of all, and a value of all.
"""

from __future__ import annotations

import os
import sys
from itertools import count

from holdfast._engine.journal.changes import PostMessage, PutMemo, Spend
from holdfast._engine.journal.rows import Lease, Memo, Message, Write
from holdfast._stores.contract import Committed
from holdfast._stores.postgres.postgres_store import PostgresStore
from tests.contract.store_contract import step
from tests.crash import probe

SHARED_EVERY = 8


def letters(mine: str, others: list[str], number: int) -> list[PostMessage]:
    """Return messages, in turns to one of the others and to both, in an order that changes."""
    names = others if number // 2 % 2 else others[:1]
    message = Message(f"{mine}-{number}", "signal", mine, 1, b"{}")
    posts = [PostMessage(f"{name}-{number % 2}", message) for name in names]
    return posts if number % 3 else posts[::-1]


def main() -> int:
    mine, *others, rounds = sys.argv[1:]
    store = PostgresStore(os.environ["CRASH_URL"])
    owner = store.register_owner()
    leases = [store.claim(f"{mine}-{part}", owner, store.now_us()) for part in range(2)]
    probe.mark(f"ready {mine}")
    probe.wait("go")
    numbers = count()
    committed = 0
    for _ in range(int(rounds)):
        writes = []
        for lease in leases:
            assert isinstance(lease, Lease)
            number = next(numbers)
            write = Write(lease, [step()], changes=letters(mine, others, number))
            if (
                number % SHARED_EVERY == 0
            ):  # Whoever waits for what all have meets nobody elsewhere.
                spend = Spend("all", steps=1, checks=True)
                write.changes = [*write.changes, spend, PutMemo(Memo("s", "all", b"1"))]
            writes.append(write)
        outcomes = store.append(writes)
        committed += sum(isinstance(outcome, Committed) for outcome in outcomes)
    store.close()
    return committed


if __name__ == "__main__":
    probe.end(main)
