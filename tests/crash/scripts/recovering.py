"""A run that fails, is resumed by a person, and degrades: `python recovering.py run|resume|recover`.

Each write to the store is a point to die at, `before write 1`, `after write 1`, …, and so is the
body of each step.
"""

from __future__ import annotations

import sys
from typing import Any

from holdfast import Retry, effect, flow, step
from tests.crash import probe

WRITES = ("append", "claim", "start_all", "post")
written = 0


def watch_writes(kind: Any) -> None:
    for name in WRITES:
        setattr(kind, name, _with_points(getattr(kind, name)))


def _with_points(operation: Any) -> Any:
    def performed(*args: Any) -> Any:
        global written
        written += 1
        number = written
        probe.point(f"before write {number}")
        result = operation(*args)
        probe.point(f"after write {number}")
        return result

    return performed


@effect(on_doubt="retry")
def order_parts() -> str:
    probe.executed("order_parts")
    return "ordered"


@step
def assemble(parts: str) -> str:
    probe.executed("assemble")
    if probe.first_time("assembly"):
        raise RuntimeError("no current")
    probe.point("in assemble")
    return f"{parts}, assembled"


@step
def deliver(what: str) -> str:
    probe.executed("deliver")
    return f"{what}, delivered"


@flow
def factory() -> str:
    return deliver(assemble(order_parts()))


def from_memory(topic: str) -> str:
    probe.executed("from_memory")
    probe.point("in the fallback")
    return f"what is known of {topic}"


@step(retry=Retry(attempts=2, initial_wait_s=0), fallback=from_memory)
def look_up(topic: str) -> str:
    probe.executed("look_up")
    raise ConnectionError("the archive is out of order")


@step
def tell(text: str) -> str:
    probe.executed("tell")
    probe.point("behind the fallback")
    return f"told {text}"


@flow
def degrading(topic: str) -> str:
    return tell(look_up(topic))


def main(what: str) -> Any:
    with probe.open_store() as store:
        watch_writes(type(store._backend))
        if what == "run":
            return factory.run("r")
        if what == "resume":
            return str(store.resume("r", actor="kim").status)
        if what == "recover":
            store.recover()
            return store.get("r").result
        return degrading.run("r", "tides")


if __name__ == "__main__":
    probe.end(lambda: main(sys.argv[1]))
