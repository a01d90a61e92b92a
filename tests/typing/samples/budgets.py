"""A user's module about money, all of it checked.

A line that ends in `# error` is wrong, and every checker has to say so; no other line is.
"""

import datetime as dt
from decimal import Decimal
from typing import assert_type

import holdfast
from holdfast import Budget, effect, flow, step
from holdfast.pricing import Price
from holdfast.types import Store
from holdfast.context import record_usage


@step(reserve_usd=0.30)
def think(topic: str) -> str:
    record_usage(model="gpt-x", input_tokens=10, output_tokens=5)
    record_usage(cost_usd=Decimal("0.01"))
    return topic


def postage(to: str, text: str) -> float:
    return 0.01 * len(text)


@effect(reserve_usd=postage)
def mail(to: str, text: str) -> bool:
    return True


@flow(budget=Budget(usd=1, tokens=1000, steps=50, wall=dt.timedelta(hours=1)))
def agent(topic: str) -> str:
    mail("ada", topic)
    return think(topic)


def use_them(store: Store) -> None:
    holdfast.pricing.set_prices({"gpt-x": Price(input_mtok=2.5, output_mtok=Decimal(10))})
    assert_type(agent.with_options(budget=Budget(usd=Decimal("0.5"))).run("r", "x"), str)
    assert_type(
        store.set_budget("r", budget=Budget(wall="2h"), actor="kim").effects, tuple[str, ...]
    )
    budget = store.get("r").budget
    if budget is not None:
        assert_type(budget.left_usd, float | None)
    with holdfast.run("block", budget=Budget(steps=5)):
        think("x")


def misuse(store: Store) -> None:
    Budget(usd="1")  # error
    Budget(1)  # error
    agent.with_options(budget=1)  # error
    store.set_budget("r", budget=2)  # error
    holdfast.pricing.set_prices({"gpt-x": 3})  # error
