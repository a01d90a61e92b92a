"""A user's module that gives times: seconds, a timedelta or a string, wherever one is asked for.

A line that ends in `# error` is wrong, and every checker has to say so; no other line is.
"""

import datetime as dt

from holdfast import Queue, effect, flow, step
from holdfast.schedules import schedule
from holdfast.testing import FakeClock
from holdfast.types import Handle, Store

HOUR = dt.timedelta(hours=1)


@step(timeout="30s")
def search(topic: str) -> str:
    return topic


@effect(timeout=HOUR, key_ttl="2d")
def pay(cents: int) -> int:
    return cents


@pay.undo(timeout="1m", key_ttl=HOUR)
def pay_back(paid: int, cents: int) -> None:
    print(paid, cents)


@flow(timeout="2h", retention=3600, queue=Queue("agents", rate=10, period="1m"))
def agent(topic: str) -> str:
    pay(3)
    return search(topic)


def use_them(store: Store, handle: Handle[str], clock: FakeClock) -> None:
    agent.with_options(delay="1h", timeout=HOUR).submit("r", "tea")
    schedule("daily", agent, every="1d", args=("tea",))
    print(store.runs(older_than="2h"), store.runs(older_than=60.5), store.runs(older_than=HOUR))
    print(handle.result(timeout="5s"))
    clock.advance("2h")


def misuse(store: Store, handle: Handle[str]) -> None:
    store.runs(older_than=[1])  # error
    handle.result(timeout=b"5s")  # error
    agent.with_options(delay=(1, 2))  # error
    Queue("agents", period=None)  # error
    step(timeout=object())  # error
