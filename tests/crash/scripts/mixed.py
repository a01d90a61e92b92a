"""An agent with everything in it: steps, effects that may be retried, turns, gather, each.

`python mixed.py FIRST LAST` takes up the runs m<FIRST> to m<LAST>, some at once. Each execution of
a body is in the ledger with a note of its own, and the note is part of what the step returns, so
that the journal can be compared with what happened.
"""

from __future__ import annotations

import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import holdfast
from holdfast import Retry, each, effect, flow, gather, step, turns
from holdfast.errors import RunBusy, RunHeld, StaleView
from tests.crash import probe

TURNS = 4
AT_ONCE = 3


def note(label: str, run: str) -> str:
    """Record an execution under a note that no other execution has."""
    nonce = uuid.uuid4().hex
    probe.point(f"before {label}")
    probe.executed(label, run=run, note=nonce)
    probe.point(f"in {label}")
    return nonce


@step
def think(run: str, label: str, seen: int) -> str:
    return note(label, run)


@effect(on_doubt="retry", retry=Retry(attempts=1000, initial_wait_s=0.01, max_wait_s=0.05))
def charge(run: str, label: str, amount: int) -> dict[str, Any]:
    note(label, run)
    made = probe.payments().charge(holdfast.idempotency_key(), amount)
    probe.point(f"after {label}")
    return made


@dataclass
class Chat:
    messages: list[str]


def line(run: str, name: str) -> list[str]:
    return [think(run, f"{name}-{i}", i) for i in range(3)]


@flow
def agent(run: str) -> dict[str, int]:
    first = think(run, "first", 0)
    probe.point("between")
    paid = charge(run, "charge", 5)
    talk = chat(run)
    probe.point("after turns")
    left, right = gather(lambda: line(run, "left"), lambda: line(run, "right"))
    probe.point("after gather")
    items = each(lambda i: think(run, f"item-{i}", i), range(4), max_concurrency=2)
    last = charge(run, "last", 7)
    probe.point("at the end")
    return {
        "notes": len({first, *talk, *left, *right, *items}),
        "paid": paid["amount"] + last["amount"],
    }


def chat(run: str) -> list[str]:
    for talk in turns(Chat([]), max_turns=TURNS + 1):
        if len(talk.messages) == 2 * TURNS:
            return talk.messages
        turn = len(talk.messages) // 2
        talk.messages.append(think(run, f"turn-{turn}", turn))
        talk.messages.append(charge(run, f"tool-{turn}", turn)["charge"])
        probe.point(f"end of turn {turn}")
    raise AssertionError


def go_on(store: holdfast.types.Store, run: str) -> dict[str, int]:
    """Run it; wait while another process has it, and free it when it was taken for poison."""
    while True:
        try:
            return agent.run(run, run)
        except RunBusy:
            time.sleep(0.01)
        except RunHeld as held:
            if held.reason != "quarantined":
                raise
            with suppress(StaleView):
                store.resume(run, actor="torture")


def main() -> list[dict[str, int]]:
    first, last = map(int, sys.argv[1:])
    runs = [f"m{i}" for i in range(first, last + 1)]
    with probe.open_store() as store, ThreadPoolExecutor(AT_ONCE) as pool:
        probe.mark("up")
        return list(pool.map(lambda run: go_on(store, run), runs))


if __name__ == "__main__":
    probe.end(main)
