"""What a fleet of workers executes while its processes are killed: steps, and two kinds of effects.

Every body writes a line to the ledger outside, and returns what it wrote: so the journal says which
of the executions it has recorded, and the oracle sees whether there was another one after it.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any

import holdfast
from holdfast import NOT_DONE, Done, Retry, effect, flow, step
from tests.crash import probe

PAUSE_S = float(os.environ.get("CRASH_PAUSE_S", 0))


def noted(run: str, name: str) -> str:
    """Write to the ledger that a body is being executed; returns the line."""
    line = json.dumps([run, name, os.getpid(), time.time(), ""])
    probe._append(os.environ["CRASH_LEDGER"], line + "\n")
    time.sleep(PAUSE_S)
    return line


@step(name="fleet work")
def work(run: str, number: int) -> str:
    return noted(run, f"work {number}")


@effect(name="fleet charge")
def charge(run: str) -> dict[str, Any]:
    noted(run, "charge")
    return probe.payments().charge(holdfast.idempotency_key(), 5)


@charge.on_doubt
def find(run: str) -> Any:
    found = probe.payments().lookup(holdfast.idempotency_key())
    return NOT_DONE if found is None else Done(found)


@effect(name="fleet notify", on_doubt="retry", retry=Retry(attempts=20, initial_wait_s=0.01))
def notify(run: str) -> dict[str, Any]:
    noted(run, "notify")
    return probe.payments().charge(holdfast.idempotency_key(), 1)


@flow(name="fleet member")
def member(run: str, steps: int) -> int:
    """Steps, with one effect after a third of them and another after two thirds."""
    done = 0
    for number in range(1, steps - 1):
        done += bool(work(run, number))
        if number == steps // 3:
            done += charge(run)["amount"] == 5
        if number == 2 * steps // 3:
            done += notify(run)["amount"] == 1
    return done
