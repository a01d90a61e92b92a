"""Runs with a long journal that are given back and claimed again all the time: they sleep and work."""

from __future__ import annotations

from holdfast import effect, flow, sleep, step, wait_for_signal
from tests.crash import probe

DEADLINE_S = 4.0


@effect(name="long-order")
def order() -> str:
    return "ordered"


@order.undo(on_doubt="retry")
def no_order(ordered: str) -> None:
    probe.executed(f"not {ordered}")


@step(name="long-past", commit="grouped")
def past(number: int) -> dict[str, object]:
    return {"order": number, "lines": [{"sku": f"S{k}", "count": k} for k in range(4)]}


@step(name="long-tick")
def tick(number: int) -> int:
    return number


def work_on() -> None:
    number = 0
    while True:
        sleep(1.1)  # Long enough to be unloaded.
        number = tick(number + 1)


@flow(name="long-run")
def long_run(steps: int) -> None:
    for number in range(steps):
        past(number)
    wait_for_signal("go")
    work_on()


@flow(name="long-run-ordered")
def ordered_run(steps: int) -> None:
    """One that can be rolled back."""
    order()
    for number in range(steps):
        past(number)
    work_on()


@flow(name="long-run-timed", timeout=DEADLINE_S)
def timed_run(steps: int) -> None:
    """One that has a deadline."""
    for number in range(steps):
        past(number)
    work_on()
