"""What every agent program under test has in common: `python -m tests.integrations.x.agent`.

The process opens the store that STORE names and dies where KILL says: `entry:7` right after its
seventh entry was committed, `ended:2` when its second call of user code has returned and nothing is
recorded of that yet. It prints the result on its last line.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections.abc import Sequence
from typing import Any

import holdfast
from holdfast.observers import ObservedAttempt, ObservedEntry, ObservedRun, Observer

RUN_ID = "agent-1"
QUESTION = "Refund 30 EUR for order 42?"


def server_url() -> str:
    return os.environ["SERVER"]


def main(work: Any) -> None:
    """Open the store, arm the kill, do the work, print what came of it."""
    with holdfast.open(os.environ["STORE"]):
        kind, _, number = os.environ.get("KILL", "").partition(":")
        if kind:
            holdfast.observers.observe(Killer(kind, int(number)))
        result = work()
        if inspect.isawaitable(result):
            result = asyncio.run(_awaited(result))
    print("RESULT", result, flush=True)


async def _awaited(result: Any) -> Any:
    return await result


class Killer(Observer):
    def __init__(self, kind: str, number: int) -> None:
        self._kind = kind
        self._left = number

    def _count(self, kind: str, many: int = 1) -> None:
        if kind != self._kind:
            return
        self._left -= many
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    def entries_committed(self, run: ObservedRun, entries: Sequence[ObservedEntry]) -> None:
        self._count("entry", len(entries))

    def attempt_ended(self, attempt: ObservedAttempt, begun: Any) -> None:
        self._count("ended")
