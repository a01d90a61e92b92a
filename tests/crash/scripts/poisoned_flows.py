"""One run that kills every process that executes it, and others that are at work beside it.

Times are short: a worker makes room for a suspect much sooner than it would elsewhere.
"""

from __future__ import annotations

import os
import signal
import time

from holdfast import flow, step
from holdfast._runtime.worker import suspects

suspects.HUNGRY_AFTER_S = 0.3
DIES_AFTER_S, WORKS_S = 0.2, 0.6
"""A step of an innocent run takes longer than a process lives that has the poison in it."""


@step(name="poison dies")
def dies() -> None:
    time.sleep(DIES_AFTER_S)
    os.kill(os.getpid(), signal.SIGKILL)


@flow(name="poison")
def poison() -> None:
    dies()


@step(name="innocent works")
def works(number: int) -> int:
    time.sleep(WORKS_S)
    return number + 1


@flow(name="innocent")
def innocent(number: int) -> int:
    return works(works(number))
