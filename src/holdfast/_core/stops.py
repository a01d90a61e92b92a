"""How a run is stopped from inside: a private BaseException that passes through user code.

`except Exception` in a flow does not catch it. A flow that catches BaseException only delays it:
the run remembers that it is stopping, and every later durable call raises it again.
"""

from __future__ import annotations

import math

import msgspec

from holdfast.errors import HoldfastError


class Waiting(msgspec.Struct, frozen=True):
    """What one line of a run waits for, as people are told."""

    what: str
    name: str
    until_us: int | None
    step: str


def waits_for(waiting: list[Waiting]) -> str:
    """Return in a word what a run waits for: of several things the one with the first time limit,
    since that is the time which is told with it."""
    first = min(waiting, key=lambda one: math.inf if one.until_us is None else one.until_us)
    return f"{first.what}:{first.name}" if first.name else first.what


class Unload(msgspec.Struct):
    """The run waits, and nobody needs to have it meanwhile."""

    waiting: list[Waiting]
    heard: int
    """The number of the newest message that it has looked at."""


class Unwind(BaseException):
    """Unwinds a flow. `error` is what the caller of `run` gets to see."""

    def __init__(
        self,
        error: HoldfastError,
        *,
        waiting_on: str | None = None,
        released: str | None = None,
        unload: Unload | None = None,
        took: list[str] | None = None,
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.told = True
        """Whether the flow has met it; one that comes from outside may come too late for that."""
        self.released = released
        """Why the run is given back, for one that any other process may go on with at once."""
        self.unload = unload
        """What the run waits for, for one that is given back until that comes."""
        self.took = took or []
        """Messages that made it stop: they are taken with the entry that says so."""
        self.waiting_on = waiting_on
        """What frees the run, for one that is held because of another run's key."""
