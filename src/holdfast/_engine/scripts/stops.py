"""How a run is stopped from inside: a private BaseException that passes through user code.

`except Exception` in a flow does not catch it. A flow that catches BaseException only delays it:
the run remembers that it is stopping, and every later durable call raises it again.
"""

from __future__ import annotations

import math
import re

import msgspec

from holdfast.errors import HoldfastError


class Waiting(msgspec.Struct, frozen=True):
    """The wait of one line of a run, in words for people."""

    what: str
    name: str
    until_us: int | None
    step: str


def waits_for(waiting: list[Waiting]) -> str:
    """Return in a word what a run waits for: of several waits the one with the first time limit, since
    that time is reported with it."""
    first = min(waiting, key=lambda one: math.inf if one.until_us is None else one.until_us)
    return f"{first.what}:{first.name}" if first.name else first.what


class Unload(msgspec.Struct):
    """The run waits, and needs no owner meanwhile."""

    waiting: list[Waiting]
    heard: int
    """The number of the newest message that it has seen."""


CLASS = "class"
"""A stored value does not fit today's class: repair the class; there is nothing to accept."""
SORT = "sort"
"""A step became a flow of the same name, or similar: that cannot be accepted under this name."""
VALUE = "value"
"""A person settled an effect with a value of a wrong type."""


HELD_BY_CODE = "code:"
_CODE = re.compile(r"(?s)^(.*/[0-9a-f]{16})\+.*$")
TOKEN_MAX_BYTES = 1500
"""An index of a database takes no more than 2,700 bytes."""


class Tried(msgspec.Struct, array_like=True):
    """The value of `waiting_on` in a run that is held as diverged: it waits for code that is not among
    what could not replay it. All that a worker needs to decide whether it tries such runs stands in
    it, so that thousands of runs that one deploy left behind are decided about at once."""

    flow: str
    version: str
    queue: str
    codes: list[str]
    """Version and fingerprint of each; see `upgrades.mark`."""

    def token(self) -> str:
        """Return it as a string. A long one omits the oldest."""
        while True:
            told = msgspec.json.encode(self)
            if len(told) <= TOKEN_MAX_BYTES or len(self.codes) < 2:
                return HELD_BY_CODE + told.decode()
            self.codes = self.codes[1:]

    def as_text(self) -> str:
        """Return them for people, each once."""
        return ", ".join(dict.fromkeys(_CODE.sub(r"\1", code) for code in self.codes))

    @classmethod
    def read(cls, token: str | None) -> Tried | None:
        """Return the contents of a token, if it is one."""
        if token is None or not token.startswith(HELD_BY_CODE):
            return None
        return msgspec.json.decode(token.removeprefix(HELD_BY_CODE), type=cls)


class Unwind(BaseException):
    """Unwinds a flow. The caller of `run` gets `error`."""

    then: Unwind | None = None
    """The other reason to stop the run, for one that only stops its flow."""

    def __init__(
        self,
        error: HoldfastError,
        *,
        waiting_on: str | None = None,
        released: str | None = None,
        unload: Unload | None = None,
        took: list[str] | None = None,
        differs: str | None = None,
        about: str = "",
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.told = True
        """Whether the flow has met it; an external one may come too late for that."""
        self.released = released
        """Why the run is released, for one that any other process may continue at once."""
        self.unload = unload
        """The waits of the run, for one that is released until they are over."""
        self.took = took or []
        """Messages that caused it: the entry about it takes them."""
        self.differs = differs
        """The part of the code that does not fit, for one that is held as diverged: `CLASS`, `SORT`
        or `VALUE`."""
        self.about = about
        """Then the name of the class, or of the step or flow."""
        self.waiting_on = waiting_on
        """The key that frees the run, for one that is held because of another run's key."""
