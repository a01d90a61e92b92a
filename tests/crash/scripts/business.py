"""Charges under a business key: `python business.py RUN_ID ORDER AMOUNT`."""

from __future__ import annotations

import sys
from typing import Any

import holdfast
from holdfast import effect, flow, step
from holdfast.errors import KeyConflict
from tests.crash import probe
from tests.crash.payments import Refused


@step
def prepare(order: str) -> str:
    probe.executed("prepare", run=sys.argv[1])
    return order


@effect(key="order:{order}", not_done_on=(Refused,))
def charge(order: str, amount: int) -> dict[str, Any]:
    probe.executed("charge", run=sys.argv[1])
    probe.mark(f"charging in {sys.argv[1]}")
    made = probe.payments().charge(holdfast.idempotency_key(), amount)
    probe.point("after charge")
    return made


@flow
def settle_order(order: str, amount: int) -> dict[str, Any]:
    try:
        return charge(prepare(order), amount)
    except KeyConflict as conflict:
        return {"conflict": conflict.key, "other_run": conflict.other_run}


if __name__ == "__main__":
    run_id, order, amount = sys.argv[1:]
    with probe.open_store():
        probe.end(lambda: settle_order.run(run_id, order, int(amount)))
