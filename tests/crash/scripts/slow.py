"""A run that stays inside its second step until it is told to go on: `python slow.py NAME`.

The process says `NAME in step` when it is there and waits for `NAME go on`.
"""

from __future__ import annotations

import sys

from holdfast import flow, step
from tests.crash import probe

name = sys.argv[1]


@step
def first() -> str:
    probe.executed("first", note=name)
    return name


@step
def second() -> str:
    probe.executed("second", note=name)
    probe.mark(f"{name} in step")
    probe.wait(f"{name} go on")
    return name


@step
def third() -> str:
    probe.executed("third", note=name)
    return name


@flow
def slow() -> list[str]:
    return [first(), second(), third()]


if __name__ == "__main__":
    with probe.open_store():
        probe.end(lambda: slow.run("r"))
