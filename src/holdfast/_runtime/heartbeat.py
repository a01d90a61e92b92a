"""The heartbeat: one thread per store renews the leases of the runs at work here.

It never runs on the user's event loop, so a blocked loop does not lose its leases. Each beat also
writes the start of plain steps that are still at work, so that people see what is going on.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from holdfast._core.stops import Unwind
from holdfast._runtime import logs

if TYPE_CHECKING:
    from holdfast._runtime.engine import Engine


class Heartbeat:
    """Beats three times per lease while runs are at work."""

    def __init__(self, engine: Engine, every_s: float) -> None:
        self._engine = engine
        self._every_s = every_s
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def ensure(self) -> None:
        """Start the thread if it is not there yet."""
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="holdfast-heartbeat", daemon=True
            )
            self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        while not self._stop.wait(self._every_s):
            self.beat()

    def beat(self) -> None:
        """Renew every lease once."""
        for execution in self._engine.executing():
            try:
                execution.beat()
            except Unwind:
                continue
            except Exception as error:
                logs.failure("heartbeat of run %s failed", execution.run_id, error=error)
