"""One process, one owner, two ways to come by a run: a caller admits it, or the worker takes it.

A worker may take again what its own process owns and nobody works on: a run that was dropped when
the store could not be reached. A run that is just being admitted looks the same in the store, so
the worker does not look while somebody admits: any number admit at once, or one takes.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Generator


class Doorway:
    """Keeps admitting and taking apart. Who wants to take goes before who comes later."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._admitting = 0
        self._taking = 0
        """Who takes or waits to."""

    @contextlib.contextmanager
    def admitting(self) -> Generator[None, None, None]:
        """Admit a run, beside others who do."""
        with self._changed:
            self._changed.wait_for(lambda: not self._taking)
            self._admitting += 1
        try:
            yield
        finally:
            with self._changed:
                self._admitting -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def taking(self) -> Generator[None, None, None]:
        """Take runs while nobody admits any."""
        with self._changed:
            self._taking += 1
            self._changed.wait_for(lambda: not self._admitting)
        try:
            yield
        finally:
            with self._changed:
                self._taking -= 1
                self._changed.notify_all()
