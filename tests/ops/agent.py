"""Flows that the tests of `holdfast run` execute in real processes."""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import time
from pathlib import Path

from holdfast import Retry, effect, flow, gather, step

FOLDER = Path(os.environ.get("AGENT_FOLDER", "."))


def executed(name: str) -> int:
    """Note that a body was executed; returns how often it has been."""
    log = FOLDER / "executed.log"
    with log.open("a") as out:
        out.write(f"{name}\n")
    return log.read_text().split().count(name)


@step
def first(n: int) -> int:
    executed("first")
    return n + 1


@step
def deadly(n: int) -> int:
    """Kill the process, twice."""
    if executed("deadly") < 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return n * 10


@step
def poison(n: int) -> int:
    executed("poison")
    os._exit(17)


@step(retry=Retry(attempts=2, initial_wait_s=0.01))
def broken() -> None:
    executed("broken")
    if not (FOLDER / "mended").exists():
        raise ValueError("\x1b[31mbroken\x1b[0m")


@step
def long(n: int) -> int:
    (FOLDER / "inside").touch()
    deadline = time.monotonic() + 300  # Longer than any test waits: it ends because it is let go.
    while not (FOLDER / "let-go").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    return n


@effect
def charge(order: str) -> str:
    executed("charge")
    raise TimeoutError("no answer")


@dataclasses.dataclass
class Order:
    number: int
    name: str


@flow
def killed(n: int) -> int:
    print("the flow prints")
    return deadly(first(n))


@flow
def poisoned(n: int = 1) -> int:
    return poison(first(n))


@flow
def fails() -> str:
    first(1)
    broken()
    return "mended"


@flow
def pays(order: str) -> str:
    first(1)
    return charge(order)


@flow
def waits(n: int = 1) -> int:
    return long(first(n))


@flow
def pays_and_waits() -> tuple[str, int]:
    return gather(charged_when_the_other_is_at_work, lambda: long(1))


def charged_when_the_other_is_at_work() -> str:
    # A doubt stops the run, and a branch that has not begun by then does not begin.
    while not (FOLDER / "inside").exists():
        time.sleep(0.01)
    return charge("42")


@flow
async def typed(order: Order, times: int = 2) -> str:
    return order.name * times


@flow
def priced(order: Order) -> int:
    return first(order.number)


@flow
def leaves() -> None:
    sys.exit("leaving")


no_flow = 5


@effect
def reserve(n: int) -> str:
    executed("reserve")
    return f"reserved {n}"


@reserve.undo
def release(reserved: str, n: int) -> None:
    executed("release")


@effect
def announce(n: int) -> str:
    executed("announce")
    return "announced"


@flow
def reservation(n: int) -> str:
    reserved = reserve(n)
    announce(n)
    return reserved
