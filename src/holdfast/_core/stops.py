"""How a run is stopped from inside: a private BaseException that passes through user code.

`except Exception` in a flow does not catch it. A flow that catches BaseException only delays it:
the run remembers that it is stopping, and every later durable call raises it again.
"""

from __future__ import annotations

from holdfast.errors import HoldfastError


class Unwind(BaseException):
    """Unwinds a flow. `error` is what the caller of `run` gets to see."""

    def __init__(
        self,
        error: HoldfastError,
        *,
        waiting_on: str | None = None,
        released: str | None = None,
    ) -> None:
        super().__init__(str(error))
        self.error = error
        self.released = released
        """Why the run is given back, for one that any other process may go on with at once."""
        self.waiting_on = waiting_on
        """What frees the run, for one that is held because of another run's key."""
