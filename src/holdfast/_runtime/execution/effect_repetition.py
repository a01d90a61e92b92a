"""Whether a new effect may be the repetition of one that the run has not come back to.

Calls of one reply are made at the same time: an effect that is in doubt may be called again a moment
after one that is new. So there is some patience before a call is taken for a repetition.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from holdfast._engine.scripts.requests import FindUnreplayed
from holdfast._runtime.execution.frames import without_places

if TYPE_CHECKING:
    from holdfast._runtime.execution.execution import Execution

PATIENCE_S = 2.0
POLL_S = 0.02


def find_unreplayed(execution: Execution, request: FindUnreplayed) -> str | None:
    """Return the key of the effect that a call may repeat; looks for a while, in this thread."""
    end_s = time.monotonic() + PATIENCE_S
    while (found := _look(execution, request)) is not None and time.monotonic() < end_s:
        execution.interrupted.wait(POLL_S)
        execution.check()
    return found


async def find_unreplayed_async(execution: Execution, request: FindUnreplayed) -> str | None:
    """The awaited twin of `find_unreplayed`."""
    import asyncio

    end_s = time.monotonic() + PATIENCE_S
    while (found := _look(execution, request)) is not None and time.monotonic() < end_s:
        await asyncio.sleep(POLL_S)
        execution.check()
    return found


def _look(execution: Execution, request: FindUnreplayed) -> str | None:
    with execution.lock:
        met = execution.replay.consumed
        if request.before_change:
            found = execution.replay.unreplayed_effects.before_change(met)
        else:
            by_place = not without_places.get()
            found = execution.replay.unreplayed_effects.like(request.call, met, by_place=by_place)
        return None if found is None else found.key
