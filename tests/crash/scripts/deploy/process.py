"""What a process of either deployment does: work until it is told to end, or submit runs."""

from __future__ import annotations

import signal
import sys
import threading
import time
from typing import Any

from tests.crash import probe

WORK_S = 0.01
"""How long a step takes, so that deployments meet runs that are in the middle."""


def done(order: str, what: str, version: str) -> str:
    """Do a piece of work, and say which code did it."""
    probe.executed(what, run=order, note=version)
    passes(order, what, version)
    time.sleep(WORK_S)
    return f"{what} by {version}"


def passes(order: str, place: str, version: str) -> None:
    """Some orders never get past a place in the old code, so that they meet the new one there."""
    if version == "1" and order.startswith(f"stuck at {place}"):
        probe.mark(order)
        threading.Event().wait()


def main(flow: Any) -> None:
    if sys.argv[1] == "submit":
        prefix, count = sys.argv[2], int(sys.argv[3])
        with probe.open_store():
            for number in range(count):
                flow.submit(f"{prefix}{number}", f"{prefix}{number}")
        return
    ending = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ending.set())
    with probe.open_store() as store, store.worker(flows=[flow], concurrency=4, drain_s=0.2):
        probe.mark(f"working {sys.argv[2]}")
        ending.wait()
