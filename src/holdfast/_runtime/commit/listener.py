"""Hearing of changes: one thread listens to the store, for as many as want to know.

A worker has a bell that is rung by commits of any process, by a place that became free, and by its
end. Streams of async callers wait in their event loop, without a thread of their own.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast._runtime.clocks import CHANCE, Thread

if TYPE_CHECKING:
    from holdfast._stores.contract import Store

LISTEN_S = 2.0
"""How long one wait for a change of the store lasts at most."""
SILENT_S = 0.03
"""A store that was silent for so long is not busy."""
DEAF_S = 1.0
"""The pause after the store could not be listened to; looking now and then is the net."""


class Listener:
    """Calls back after commits, from a thread of its own, while anybody wants to hear."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._closed = False
        self._lock = threading.Lock()
        self._told: list[Callable[[], None]] = []
        self._thread: threading.Thread | None = None

    def add(self, callback: Callable[[], None]) -> None:
        """Call this after every change from now on; it must be quick, and not raise."""
        with self._lock:
            self._told.append(callback)
            if self._thread is None:
                thread = Thread(target=self._run, name="holdfast-listen")
                thread.start()
                self._thread = thread

    def remove(self, callback: Callable[[], None]) -> None:
        """Call it no longer."""
        with self._lock:
            if callback in self._told:
                self._told.remove(callback)

    def close(self) -> None:
        """Have the thread end when it has listened for a while: the store is closed."""
        self._closed = True

    def _run(self) -> None:
        pause = threading.Event()
        while not self._is_over():
            try:
                changed = self._store.wait_for_change(LISTEN_S)
            except Exception:
                # The next reader of the store gets the error, and reports it in its own terms.
                pause.wait(DEAF_S * CHANCE.uniform(0.5, 1.0))
                changed = True
            if changed:
                with self._lock:
                    told = list(self._told)
                for callback in told:
                    callback()

    def _is_over(self) -> bool:
        """Return whether nobody wants to hear; then the thread ends, and the next one is another."""
        with self._lock:
            if self._told and not self._closed:
                return False
            self._thread = None
            return True


class Bell:
    """Wakes the one thread that takes runs."""

    def __init__(self) -> None:
        self._listener: Listener | None = None
        self._rung = threading.Event()
        self._urgent = threading.Event()

    def start(self, listener: Listener) -> None:
        """Begin to listen to the store."""
        self._listener = listener
        listener.add(self._rung.set)

    def ring(self) -> None:
        """Something changed in this process: a place is free, or the worker ends."""
        self._urgent.set()
        self._rung.set()

    def muffle(self) -> None:
        """Forget what rang, before looking: what rings from now on is heard afterwards."""
        self._urgent.clear()
        self._rung.clear()

    def wait(self, timeout_s: float, quiet_s: float = 0.0, at_rest_s: float = 0.0) -> bool:
        """Wait for a ring. One of the store is answered after a while of quiet, so that a store
        that is busy with other things does not make a worker look all the time. One that breaks a
        long silence is answered sooner: after `at_rest_s`."""
        began_s = time.monotonic()
        if not self._rung.wait(timeout_s):
            return False
        if time.monotonic() - began_s > SILENT_S:
            quiet_s = min(quiet_s, at_rest_s)
        if quiet_s > 0.0:
            self._urgent.wait(quiet_s)
        return True

    def close(self) -> None:
        """Stop listening, and wake the waiter."""
        if self._listener is not None:
            self._listener.remove(self._rung.set)
        self.ring()
