"""Runs in all states, and the same runs taken up again in another store.

    python moving.py populate COUNT    starts COUNT runs of each state, then dies in the midst of them
    python moving.py finish COUNT      brings all of them to their end

Each run charges a card under its own key; the payment server counts.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import holdfast
from holdfast import Done, Retry, effect, flow, step
from holdfast._engine.journal.history import Record
from holdfast.errors import RunFailed, RunHeld
from tests.crash import probe

STATES = ("completed", "failed", "held", "queued", "holder", "waiting", "midway", "doubt")
RETRY = Retry(attempts=3, initial_wait_s=0.01)


def run_ids(count: int) -> Iterator[tuple[str, str, int]]:
    for n in range(count):
        for state in STATES:
            yield f"{state}-{n}", state, n


def here() -> str:
    run = holdfast.context.current_run()
    assert run is not None
    return run.run_id


def block() -> None:
    """The first time that a run comes here it stays, until its process is killed."""
    if probe.first_time(f"block {here()}"):
        probe.mark(f"blocked {here()}")
        probe.wait("nothing that anybody says")


def charge(name: str) -> str:
    probe.executed(name, here())
    return str(probe.payments().charge(holdfast.idempotency_key(), 1)["charge"])


@step
def prepare(n: int) -> str:
    probe.executed("prepare", here())
    return f"prepared {n} " * 60


@step
def fragile() -> None:
    probe.executed("fragile", here())
    if probe.first_time(f"fragile {here()}"):
        raise ValueError("the first time")


@step
def slow() -> None:
    probe.executed("slow", here())
    block()


@effect
def pay() -> str:
    return charge("pay")


@effect
def pay_and_ask() -> str:
    made = charge("pay_and_ask")
    if probe.first_time(f"ask {here()}"):
        raise ConnectionError("who knows")
    return made


@effect(on_doubt="retry", retry=RETRY)
def pay_and_retry() -> str:
    made = charge("pay_and_retry")
    block()
    return made


@effect(on_doubt="retry", retry=RETRY, key="order:{n}")
def pay_by_key(n: int) -> str:
    made = charge("pay_by_key")
    block()
    return made


@flow
def work(state: str, n: int) -> list[Any]:
    text = prepare(n)
    if state == "failed":
        fragile()
    elif state == "midway":
        slow()
    if state == "held":
        paid = pay_and_ask()
    elif state == "doubt":
        paid = pay_and_retry()
    elif state in ("holder", "waiting"):
        paid = pay_by_key(n)
    else:
        paid = pay()
    return [len(text), paid]


def populate(store: holdfast.types.Store, count: int) -> None:
    blocked: list[str] = []
    for run_id, state, n in run_ids(count):
        if state == "completed":
            work.run(run_id, state, n)
        elif state in ("failed", "held"):
            try:
                work.run(run_id, state, n)
            except (RunFailed, RunHeld):
                continue
            raise AssertionError(f"{run_id} came to its end")
        elif state == "queued":
            work.submit(run_id, state, n)
        else:
            work.start(run_id, state, n)
            if state != "waiting":
                probe.wait(f"blocked {run_id}")
            else:
                blocked.append(run_id)
    while not all(store.get(run_id).status == "waiting" for run_id in blocked):
        store._backend.wait_for_change(0.1)
    probe.point("populated")


def finish(store: holdfast.types.Store, count: int) -> dict[str, Any]:
    with holdfast.open(os.environ["CRASH_SOURCE"], default=False) as source:
        again = source.recover()
        assert again == [], f"still executed in the source: {again}"
    results: dict[str, Any] = {}
    for run_id, state, n in run_ids(count):
        if state == "held":
            shown = [e for e in store.history(run_id) if e.step == "pay_and_ask"][0].body["key"]
            found = probe.payments().lookup(shown)
            assert found is not None, f"{run_id} was charged under another key than {shown}"
            store.settle(run_id, "pay_and_ask", Done(found["charge"]), actor="ana")
        results[run_id] = work.run(run_id, state, n)
    return results


if __name__ == "__main__":
    if os.environ.get("CRASH_PLANT") == "derived anew":
        Record.shown_key = lambda _record: None  # type: ignore[assignment, method-assign]
    with probe.open_store() as opened:
        perform: Any = {"populate": populate, "finish": finish}[sys.argv[1]]
        probe.end(lambda: perform(opened, int(sys.argv[2])))
