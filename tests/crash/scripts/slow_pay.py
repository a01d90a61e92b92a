"""An effect that stays before its request until it is told to go on: `python slow_pay.py NAME POLICY`."""

from __future__ import annotations

import sys
from typing import Any

import holdfast
from holdfast import NOT_DONE, Done, Retry, effect, flow
from tests.crash import probe

name, policy = sys.argv[1:]


def send() -> str:
    probe.executed("charge", note=name)
    probe.mark(f"{name} in effect")
    probe.wait(f"{name} go on")
    return probe.payments().charge(holdfast.idempotency_key(), 5)["charge"]


@effect(on_doubt="retry", retry=Retry(initial_wait_s=0.01))
def charge_retry() -> str:
    return send()


@effect
def charge_function() -> str:
    return send()


@charge_function.on_doubt
def look_up() -> Any:
    found = probe.payments().lookup(holdfast.idempotency_key())
    return NOT_DONE if found is None else Done(found["charge"])


@flow
def pay() -> str:
    return charge_retry() if policy == "retry" else charge_function()


if __name__ == "__main__":
    with probe.open_store():
        probe.end(lambda: pay.run("r"))
