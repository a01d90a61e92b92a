"""The bell of a worker: rung by commits of any process, by a place that became free, by its end."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from holdfast._runtime.clock import CHANCE

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine

LISTEN_S = 5.0
"""How long one wait for a change of the store lasts at most."""
DEAF_S = 1.0
"""The pause after the store could not be listened to; looking now and then is the net."""


class Bell:
    """Wakes the one thread that takes runs."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rung = threading.Event()
        self._urgent = threading.Event()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="holdfast-listen", daemon=True)

    def start(self) -> None:
        """Begin to listen to the store."""
        self._thread.start()

    def ring(self) -> None:
        """Something changed in this process: a place is free, or the worker ends."""
        self._urgent.set()
        self._rung.set()

    def muffle(self) -> None:
        """Forget what rang, before looking: what rings from now on is heard afterwards."""
        self._urgent.clear()
        self._rung.clear()

    def wait(self, timeout_s: float, quiet_s: float = 0.0) -> bool:
        """Wait for a ring. One of the store is answered after a while of quiet, so that a store
        that is busy with other things does not make a worker look all the time."""
        if not self._rung.wait(timeout_s):
            return False
        if quiet_s > 0.0:
            self._urgent.wait(quiet_s)
        return True

    def close(self) -> None:
        """Stop listening; the thread ends with its last wait."""
        self._ended.set()
        self.ring()

    def _listen(self) -> None:
        while not (self._ended.is_set() or self._engine.closed):
            try:
                if self._engine.kept.wait_for_change(LISTEN_S):
                    self._rung.set()
            except Exception:
                self._ended.wait(DEAF_S * CHANCE.uniform(0.5, 1.0))
