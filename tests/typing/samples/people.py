"""A user's module that waits, asks and has effects approved, all of it checked.

A line that ends in `# error` is wrong, and every checker has to say so; no other line is.
"""

import datetime as dt
from dataclasses import dataclass
from typing import Any, assert_type

from holdfast import NOT_DONE, Approval, Done, aio, ask, effect, flow, sleep, wait_for_signal
from holdfast.types import Store


@dataclass
class Plan:
    days: int


@effect(needs_approval=True)
def book(days: int) -> str:
    return f"{days} days"


@effect(needs_approval=Approval(to="finance", valid_for=dt.timedelta(hours=1)))
async def pay(amount: int) -> bool:
    return amount > 0


def is_large(amount: int) -> bool | Approval:
    return Approval(to="boss") if amount > 1000 else amount > 100


@effect(needs_approval=is_large)
def refund(amount: int) -> None: ...


@flow
def trip() -> str:
    sleep("2h")
    sleep(1.5)
    sleep(dt.datetime.now(dt.UTC))
    plan = ask("Which plan?", name="plan", type=Plan)
    assert_type(plan, Plan)
    assert_type(ask("Days?", name="days", type=int, timeout="1d", default=None), int | None)
    assert_type(ask("Hotel?", name="hotel", choices=["river", "station"]), str)
    assert_type(ask("Anything?", name="any"), Any)
    assert_type(wait_for_signal("paid", type=Plan, timeout=60), Plan)
    assert_type(wait_for_signal("paid"), Any)
    refund(5)
    return book(plan.days)


@flow
async def atrip() -> bool:
    await aio.sleep("2h")
    assert_type(await aio.ask("Days?", name="days", type=int), int)
    assert_type(await aio.wait_for_signal("paid", type=Plan), Plan)
    return await pay(3)


def people(store: Store) -> None:
    for question in store.questions(to="ana"):
        assert_type(question.digest, str | None)
        assert_type(store.answer(question.run_id, question.name, 4, actor="ana").early, bool)
    assert_type(store.approve("r", "book", digest="00", actor="ana").did, str)
    assert_type(store.reject("r", "plan", reason="no", actor="ana").number, int)
    assert_type(store.questions(limit=5).next, str | None)
    assert_type(store.signal("r", "paid", Plan(3), signal_id="x").new, bool)


def misuse(store: Store) -> None:
    ask("Days?")  # error
    ask("Days?", "days")  # error
    sleep(None)  # error
    wait_for_signal()  # error
    store.answer("r", "days")  # error
    store.answer("r", "days", 4)  # error
    store.approve("r", "book")  # error
    store.reject("r", "plan")  # error
    store.settle("r", "book", NOT_DONE)  # error
    effect(needs_approval="yes")  # error
    Approval("finance", 3, 4)  # error


def decide(store: Store) -> None:
    settled = store.settle("r", "book", Done("booked"), actor="ana")
    assert_type(settled.recorded, bool)
    assert_type(settled.freed, tuple[str, ...])
    assert_type(store.resume("r", actor="ana").goes_on, bool)
    assert_type(store.rollback("r", actor="ana").did, str)
    settled.did = "else"  # error
    settled.nothing  # error
