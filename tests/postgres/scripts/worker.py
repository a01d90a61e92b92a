"""A worker in a process of its own: `python worker.py`, until the test says `stop`.

Each execution of a body is in the ledger with a note of its own, and the note is what it returns.
Whatever the flow gets was acknowledged, and is noted outside at once: it must never be otherwise.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from contextlib import suppress
from typing import Any

import holdfast
from holdfast import Retry, effect, flow, step
from holdfast.errors import StoreError
from tests.crash import probe

ROUNDS = 5


def note(label: str, run: str) -> str:
    nonce = uuid.uuid4().hex
    probe.executed(label, run=run, note=nonce)
    return nonce


def acknowledged(run: str, label: str, value: str) -> None:
    line = json.dumps([run, label, value, os.getpid()]) + "\n"
    probe._append(os.environ["CRASH_ACKS"], line)


@step
def job_work(run: str, label: str) -> str:
    time.sleep(float(os.environ.get("CRASH_WORK_S", "0")))
    return note(label, run)


@effect(on_doubt="retry", retry=Retry(attempts=1000, initial_wait_s=0.01, max_wait_s=0.05))
def job_charge(run: str, label: str, amount: int) -> dict[str, Any]:
    """The other side honours the key."""
    note(label, run)
    return probe.payments().charge(holdfast.idempotency_key(), amount)


@effect(key="order:{run}", on_doubt="hold")
def job_order(run: str, label: str) -> str:
    """Nobody can tell whether it happened: never a second time."""
    return note(label, run)


@flow
def job(run: str) -> int:
    for i in range(ROUNDS):
        acknowledged(run, f"work-{i}", job_work(run, f"work-{i}"))
        acknowledged(run, f"charge-{i}", job_charge(run, f"charge-{i}", i)["charge"])
    acknowledged(run, "order", job_order(run, "order"))
    return ROUNDS


def main() -> str:
    lease_s = float(os.environ["CRASH_LEASE_S"])
    concurrency = int(os.environ.get("CRASH_CONCURRENCY", "4"))
    deadline = time.monotonic() + probe.WAIT_AT_MOST_S
    while True:
        with suppress(StoreError):
            store = holdfast.open(os.environ["CRASH_URL"], lease_s=lease_s)
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    with store, store.worker(flows=[job], concurrency=concurrency, drain_s=5):
        probe.mark(f"up {os.getpid()}")
        probe.wait("stop")
    return "stopped"


if __name__ == "__main__":
    probe.end(main)
