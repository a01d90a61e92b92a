"""An order that charges a card: `python pay.py POLICY`, one effect per `on_doubt` policy."""

from __future__ import annotations

import os
import sys
from typing import Any

import holdfast
from holdfast import NOT_DONE, Done, Retry, effect, flow, step
from holdfast.errors import StepFailed
from tests.crash import probe

TIMEOUT_S = float(os.environ.get("CRASH_STEP_TIMEOUT_S", 0)) or None


def send(order: str, amount: int) -> dict[str, Any]:
    probe.executed("charge")
    probe.point("before charge")
    charge = probe.payments().charge(holdfast.idempotency_key(), amount)
    probe.point("after charge")
    return charge


@effect(timeout=TIMEOUT_S)
def charge_ask(order: str, amount: int) -> dict[str, Any]:
    return send(order, amount)


@effect(on_doubt="retry", retry=Retry(attempts=3, initial_wait_s=0.01), timeout=TIMEOUT_S)
def charge_retry(order: str, amount: int) -> dict[str, Any]:
    return send(order, amount)


@effect(on_doubt="fail", timeout=TIMEOUT_S)
def charge_fail(order: str, amount: int) -> dict[str, Any]:
    return send(order, amount)


@effect(timeout=TIMEOUT_S)
def charge_function(order: str, amount: int) -> dict[str, Any]:
    return send(order, amount)


@charge_function.on_doubt
def look_up(order: str, amount: int) -> Any:
    probe.executed("look_up")
    found = probe.payments().lookup(holdfast.idempotency_key())
    return NOT_DONE if found is None else Done(found)


CHARGES = {
    "ask": charge_ask,
    "retry": charge_retry,
    "fail": charge_fail,
    "function": charge_function,
}


@step
def prepare(order: str) -> int:
    probe.executed("prepare")
    return 5


@step
def receipt(order: str, charge: str) -> str:
    probe.executed("receipt")
    return f"{order}: {charge}"


@flow
def pay(policy: str, order: str) -> dict[str, Any]:
    amount = prepare(order)
    try:
        charge = CHARGES[policy](order, amount)
    except StepFailed as failed:
        return {"step_failed": failed.step, "outcome_unknown": failed.outcome_unknown}
    probe.point("after record")
    return {"receipt": receipt(order, charge["charge"])}


if __name__ == "__main__":
    with probe.open_store():
        probe.end(lambda: pay.run("r", sys.argv[1], order="o-1"))
