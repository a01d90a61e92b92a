"""A run that asks, waits for an approval, and for a signal: `python people.py`."""

from __future__ import annotations

from typing import Any

from holdfast import Approval, ask, effect, flow, sleep, step, wait_for_signal
from tests.crash import probe


@step
def facts() -> int:
    probe.executed("facts")
    return 1


@effect(needs_approval=Approval(to="finance", valid_for="1h"), on_doubt="retry")
def pay(amount: int) -> str:
    probe.executed("pay", note=str(amount))
    probe.point("inside pay")
    return f"paid {amount}"


@step
def after(what: str) -> str:
    probe.executed(f"after {what}")
    probe.point(f"after {what}")
    return what


@flow
def people() -> list[Any]:
    facts()
    count = ask("How many?", name="count", type=int)
    after("the answer")
    paid = pay(count)
    after("the payment")
    word = wait_for_signal("go", timeout="1d")
    after("the signal")
    sleep(0.05)
    return [count, paid, word]


if __name__ == "__main__":
    with probe.open_store():
        probe.end(lambda: people.run("r"))
