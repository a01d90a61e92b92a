"""Orders, as they were first deployed: `python agent_v1.py work`, or `submit PREFIX COUNT`."""

from __future__ import annotations

from holdfast import Retry, effect, flow, step
from tests.crash.scripts.deploy import process

VERSION = "1"


@step
def reserve(order: str) -> str:
    return process.done(order, "reserve", VERSION)


@effect(on_doubt="retry", retry=Retry(attempts=9))
def charge(order: str) -> str:
    return process.done(order, "charge", VERSION)


@flow
def handle_order(order: str) -> list[str]:
    reserved = reserve(order)
    process.passes(order, "between", VERSION)
    return [reserved, charge(order)]


if __name__ == "__main__":
    process.main(handle_order)
