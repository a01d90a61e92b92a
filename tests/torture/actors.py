"""The processes of the scenes: `python actors.py WHAT ARGUMENTS…`, killed by the scene or at its end.

work                        a worker, until it is killed
send RUN COUNT              signals, one after another
ahead SECONDS               commits while the clock of its machine is ahead by so much
nap RUN SECONDS             executes a run that sleeps
hold RUN                    executes a run that waits inside a step, once it is free
fork RUN NEW ETAG NAME      forks a run as it was seen
loops RUN ORDER             executes a run whose code has its loops in this order
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import holdfast
from holdfast import effect, flow, sleep, step, turns, wait_for_signal
from holdfast._operator.act import fork as forks
from holdfast._stores import store_clock
from tests.crash import probe
from tests.crash.scripts.long_runs import long_run

TURNS = 3
BEFORE = "torture-think#3"


def here() -> str:
    run = holdfast.context.current_run()
    assert run is not None
    return run.run_id


# -- workers, and who sends them signals ---------------------------------------------------------


@flow(name="torture-flooded")
def flooded(count: int) -> list[int]:
    return [wait_for_signal("tick", type=int) for _ in range(count)]


def work() -> None:
    with probe.open_store() as store, store.worker(flows=[long_run, flooded]):
        threading.Event().wait()


def send(run_id: str, count: str) -> int:
    """Send so many signals; returns how many of them were new."""
    new = 0
    with probe.open_store() as store, contextlib.suppress(holdfast.errors.RunEnded):
        for number in range(int(count)):
            new += store.signal(run_id, "tick", number, signal_id=f"tick {number}").new
    return new


# -- clocks --------------------------------------------------------------------------------------


@flow(name="torture-nap")
def napped(seconds: float) -> str:
    sleep(seconds)
    return "slept"


def ahead(seconds: str) -> None:
    """Commit while the time of the machine (of the server, where there is one) is ahead."""
    ahead_us = int(float(seconds) * 1e6)
    real, ask = store_clock.system_clock_us, store_clock.DatabaseClock.ask

    def asked(self: store_clock.DatabaseClock, database_us: store_clock.Clock) -> None:
        ask(self, lambda: database_us() + ahead_us)

    def reference_us() -> int:
        return real() + ahead_us

    mock.patch.object(store_clock, "system_clock_us", reference_us).start()
    mock.patch.object(store_clock.DatabaseClock, "ask", asked).start()
    with probe.open_store():
        napped.run(f"ahead by {seconds} s", 0.0)
        probe.mark(f"committed ahead by {seconds} s")
        threading.Event().wait()


def nap(run_id: str, seconds: str) -> float:
    """Return how long a sleep took."""
    with probe.open_store():
        began_s = time.monotonic()
        napped.run(run_id, float(seconds))
        return time.monotonic() - began_s


@step(name="torture-held")
def held() -> None:
    probe.executed("held", here())
    if probe.first_time(f"{here()} is held"):
        probe.mark(f"{here()} in its step")
        probe.wait(f"{here()} goes on")


@flow(name="torture-holding")
def holding() -> str:
    held()
    return "done"


def hold(run_id: str) -> str:
    """Execute it as soon as nobody else has it."""
    with probe.open_store() as store:
        while True:
            try:
                return holding.run(run_id)
            except holdfast.errors.RunBusy:
                store._backend.wait_for_change(0.05)


# -- forks ---------------------------------------------------------------------------------------


@step(name="torture-think")
def think(number: int) -> int:
    return number


@flow(name="torture-forked")
def forked() -> int:
    total = sum(think(number) for number in range(4))
    wait_for_signal("never")
    return total


def fork(run_id: str, new_run_id: str, etag: str, name: str) -> str:
    """Fork a run. Between reading it and writing the fork, wait until the scene says so."""
    make = forks.make

    def made(store: Any, planned: Any) -> Any:
        probe.mark(f"{name} has read")
        probe.wait(f"{name} goes on")
        return make(store, planned)

    mock.patch.object(forks, "make", made).start()
    with probe.open_store() as store:
        try:
            answer = forks.fork(
                store._backend,
                run_id,
                new_run_id,
                before=BEFORE,
                actor="ana",
                confirm=True,
                expected_version=etag,
            )
        except holdfast.errors.StaleView:
            return "stale"
        probe.mark(f"{name} has written")
        probe.wait(f"{name} ends")
        return "created" if answer.created else "there"


# -- loops ---------------------------------------------------------------------------------------


@effect(name="torture-refund")
def refund(cents: int) -> int:
    probe.executed(f"refund {cents}", here())
    return cents


@effect(name="torture-invoice")
def invoice(cents: int) -> int:
    probe.executed(f"invoice {cents}", here())
    return cents


class OtherState(Exception):
    """A loop was given the state of another one."""


def loop_of(act: Callable[[int], int], name: str, state: dict[str, Any]) -> None:
    """One turn. Both loops begin with the same state, so only what they make of it can tell."""
    if state["of"] not in (None, name):
        raise OtherState(f"{name} got the state of {state['of']}")
    act(state["cents"])
    state.update(of=name, n=state["n"] + 1, cents=2 * state["cents"])
    probe.point(f"{name} {state['n']}")


def refunds() -> int:
    first: dict[str, Any] = {"n": 0, "cents": 1, "of": None}
    for state in turns(first, max_turns=9):
        if state["n"] == TURNS:
            return state["cents"]
        loop_of(refund, "refund", state)
    raise AssertionError


def invoices() -> int:
    first: dict[str, Any] = {"n": 0, "cents": 1, "of": None}
    for state in turns(first, max_turns=9):
        if state["n"] == TURNS:
            return state["cents"]
        loop_of(invoice, "invoice", state)
    raise AssertionError


def loops(run_id: str, order: str) -> dict[str, int]:
    """Execute a run by code whose loops stand in this order."""
    if order == "exchanged":

        @flow(name="torture-loops")
        def books() -> dict[str, int]:
            invoiced = invoices()
            refunded = refunds()
            return {"refunded": refunded, "invoiced": invoiced}

    else:

        @flow(name="torture-loops")
        def books() -> dict[str, int]:
            refunded = refunds()
            invoiced = invoices()
            return {"refunded": refunded, "invoiced": invoiced}

    with probe.open_store():
        return books.run(run_id)


WAYS: dict[str, Callable[..., Any]] = {
    way.__name__: way for way in (work, send, ahead, nap, hold, fork, loops)
}

if __name__ == "__main__":
    if "CRASH_PLANT" in os.environ:
        from tests.torture import plants

        plants.plant(os.environ["CRASH_PLANT"])
    what, *arguments = sys.argv[1:]
    probe.end(lambda: WAYS[what](*arguments))
