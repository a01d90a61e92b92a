"""Orders in the store's own database, each with a step before it: `python orders.py COUNT`.

`CRASH_PLANT=apart` commits what the effect writes in a transaction of its own, before its outcome.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import holdfast
from holdfast import effect, flow, step
from holdfast._stores.contract import Outcome
from tests.crash import beside, probe


@step
def prepare(n: int) -> str:
    probe.executed(f"prepare-{n}")
    return f"order-{n}"


@effect(transaction=True, key="order:{name}")
def order(name: str) -> str:
    probe.executed(name)
    probe.point(f"before {name}")
    mark = beside.mark(os.environ["CRASH_URL"])
    holdfast.context.sql_connection().execute(f"INSERT INTO orders (name) VALUES ({mark})", (name,))
    probe.point(f"inside {name}")
    return name


@flow
def orders(count: int) -> list[str]:
    made: list[str] = []
    for n in range(count):
        made.append(order(prepare(n)))
        probe.point(f"after {made[-1]}")
    return made


def apart(kept: Any) -> Any:
    """The planted bug: two commits where there must be one."""

    def append_within(lease: Any, work: Any) -> Outcome:
        with beside.connected(os.environ["CRASH_URL"]) as connection:
            write = work(connection)
        probe.point("between")
        outcome: Outcome = kept.append([write])[0]
        return outcome

    return append_within


if __name__ == "__main__":
    with probe.open_store() as store:
        if os.environ.get("CRASH_PLANT") == "apart":
            store._backend.append_within = apart(store._backend)  # type: ignore[method-assign]
        probe.end(lambda: orders.run("r", int(sys.argv[1])))
