"""A run of steps at $0.30 each on a budget of $1: `python spending.py SHAPE`.

`python spending.py raise` raises it to $2, and may die at every step of doing so.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import holdfast
from holdfast import Budget, effect, flow, step
from tests.crash import probe

STEPS = 5


def _body(number: int) -> int:
    probe.executed(number)
    probe.point(f"in {number}")
    return number


@step(reserve_usd=0.30)
def pay_step(number: int) -> int:
    return _body(number)


@effect(reserve_usd=0.30, on_doubt="retry", retry=holdfast.Retry(attempts=9, initial_wait_s=0))
def pay_effect(number: int) -> int:
    return _body(number)


@step(reserve_usd=0.30)
async def pay_async(number: int) -> int:
    return _body(number)


@flow(budget=Budget(usd=1))
def spends_on_steps() -> int:
    return sum(_paid(pay_step, number) for number in range(1, STEPS + 1))


@flow(budget=Budget(usd=1))
def spends_on_effects() -> int:
    return sum(_paid(pay_effect, number) for number in range(1, STEPS + 1))


def _paid(work: Any, number: int) -> int:
    paid: int = work(number)
    probe.point(f"after {number}")
    return paid


@flow(budget=Budget(usd=1))
async def spends_async() -> int:
    total = 0
    for number in range(1, STEPS + 1):
        total += await pay_async(number)
        probe.point(f"after {number}")
    return total


def work(shape: str) -> Any:
    if shape == "step":
        return spends_on_steps.run("r")
    if shape == "effect":
        return spends_on_effects.run("r")
    return asyncio.run(spends_async.run("r"))


def raises(store: holdfast.types.Store) -> str:
    put_account = store._backend.put_account

    def slowly(*args: Any, **options: Any) -> Any:
        probe.point("recorded")
        account = put_account(*args, **options)
        probe.point("raised")
        return account

    store._backend.put_account = slowly  # type: ignore[method-assign]
    return str(store.set_budget("r", budget=Budget(usd=2), actor="ada").status)


if __name__ == "__main__":
    with probe.open_store() as opened:
        if sys.argv[1] == "raise":
            probe.end(lambda: raises(opened))
        else:
            probe.end(lambda: work(sys.argv[1]))
