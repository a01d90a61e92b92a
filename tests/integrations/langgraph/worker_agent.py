"""A worker process for the threads of `thread_agent`. It submits nothing and asks for no run: what it
does is what it found in the store. It ends when no run is left to do."""

from __future__ import annotations

import os

import holdfast
from tests.integrations.langgraph.thread_agent import kind, number, support
from tests.integrations.program import RUN_ID, Killer

if __name__ == "__main__":
    with holdfast.open(os.environ["STORE"]) as store:
        if kind:
            holdfast.observers.observe(Killer(kind, int(number)))
        with store.worker(flows=[support]):
            while store.get(RUN_ID).status not in ("completed", "failed", "held"):
                store._backend.wait_for_change(0.2)
        print("RESULT", store.get(RUN_ID).result, flush=True)
